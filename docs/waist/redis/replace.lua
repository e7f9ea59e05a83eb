-- ARGV: … 4 after, 5 expected last or '', 6 begin ttl or '', then the records
local s, after = living(), tonumber(ARGV[4])
local known, clashes = look_up(7, after)
if #clashes > 0 then return {'refused', 'ids', table.concat(clashes, ' ')} end
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= newest() then return {'refused', 'last', int(newest())} end
if not s and #known == 0 then return {'ok', '', '0 0 '} end
local admitted, missing = admit(s, true)
if not admitted then return missing end
if not s and ARGV[6] ~= '' then admitted.expires = now + ARGV[6] end
s = admitted
local first, last = position(after + 1), redis.call('LLEN', M) - 1
if first <= last then drop(s, first, last) end
local new = 0
for _, seq in ipairs(known) do if seq == 0 then new = new + 1 end end
push(s, 7, known)
save(s)
for index, seq in ipairs(known) do known[index] = int(seq) end
return {'ok', s.inc, new .. ' ' .. int(s.sv) .. ' ' .. table.concat(known, ' ')}
