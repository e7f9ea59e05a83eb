-- ARGV: … 4 token, 5 retry, 6 expected last, 7 ttl, 8 snapshot?, 9 format, 10 payload, 11 expected version,
--       12 how many replaceable formats, those, then the records: id hash, digest, format length, format, payload
local from = 13 + ARGV[12]
local s = living()
if s and ARGV[5] == '1' then
  for slot = 0, 31 do
    local kept = redis.call('HGET', S, 'a' .. slot)
    if kept and string.sub(kept, 1, 16) == ARGV[4] then return {'ok', s.inc, string.sub(kept, 17)} end
  end
end

local known, clashes, new = look_up(s, from, math.huge)                    -- the rules of `plan_append`, in their order
local replayed = #known > 0 and new == 0
if #clashes > 0 then return {'refused', 'ids', table.concat(clashes, ' ')} end
if not replayed and ARGV[6] ~= '' and tonumber(ARGV[6]) ~= newest(s) then return {'refused', 'last', (newest(s))} end
local saves = not replayed and ARGV[8] == '1'
if saves then
  local replaceable = not (s and s.sf)
  for at = 13, from - 1 do replaceable = replaceable or ARGV[at] == s.sf end
  if not replaceable then return {'refused', 'format', ''} end
  local version = s and s.sv or 0
  if ARGV[11] ~= '' and tonumber(ARGV[11]) ~= version then return {'refused', 'version', version} end
end

local admitted, missing = admit(s, true)                                   -- nothing is written above this line
if not admitted then return missing end
s = admitted
push(s, from, known)
if saves then s.sv = s.sv + 1 end
local given, slot = answer(new, s, known), 'a' .. (s.calls % 32)
s.calls = s.calls + 1
if ARGV[7] ~= '' then s.expires = now() + ARGV[7] end
if saves then save(s, slot, ARGV[4] .. given, 'sf', ARGV[9], 'sp', ARGV[10]) else save(s, slot, ARGV[4] .. given) end
return {'ok', s.inc, given}
