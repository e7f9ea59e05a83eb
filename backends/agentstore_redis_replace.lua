-- ARGV: … 4 after, 5 expected last or '', 6 begin ttl or '', then the records
local s, after = living(), tonumber(ARGV[4])
local known, clashes, new = look_up(s, 7, after)
if #clashes > 0 then return {'refused', 'ids', table.concat(clashes, ' ')} end
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= newest(s) then return {'refused', 'last', (newest(s))} end
if not s and #known == 0 then return {'ok', '', '0 0 '} end
local admitted, missing = admit(s, true)
if not admitted then return missing end
if not s and ARGV[6] ~= '' then admitted.expires = now() + ARGV[6] end
s = admitted
local first, last = position(after + 1), redis.call('LLEN', M) - 1
if first <= last then
  try(s)
  redis.call('RPUSH', M, '')                                               -- this too is only tried
  redis.call('LTRIM', M, 0, -2)
  drop(s, first, last)
end
push(s, 7, known)
save(s)
return {'ok', s.inc, answer(new, s, known)}
