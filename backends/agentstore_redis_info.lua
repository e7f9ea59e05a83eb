-- One session; or, with an offer, one index entry: its incarnation and minute. KEYS: 4, 5 what it may have staged.
-- ARGV: … 4 who asks of an entry: 'list', 'purge' (all namespaces), 'purge one' (also restores under way)
local s, minute = living(), math.floor(now() / 60000000)
if ARGV[2] ~= '' and not (s and s.inc == ARGV[2]) then
  local staged = redis.call('EXISTS', KEYS[4]) == 1
  if ARGV[4] == 'list' and minute - ARGV[3] < 10 then return {'young'} end -- its writer may be between its two steps
  if ARGV[4] ~= 'purge one' and staged then return {'young'} end
  local left = math.floor(ARGV[3] * 60000 + 125000 - now() / 1000)           -- how long an offer could still be good
  if left > 0 and not staged then redis.call('SET', KEYS[#KEYS], '', 'PX', left) end    -- it can never begin now
  if not s then redis.call('UNLINK', S, M, I) end
  redis.call('UNLINK', KEYS[4], KEYS[5])
  return {staged and 'staged' or 'gone'}
end
if not s then return {} end
if tonumber(ARGV[3]) > s.minute then                                       -- that writer died there: catch up
  s.minute, s.updated = tonumber(ARGV[3]), ARGV[3] * 60000000
  save(s)
end
local first = redis.call('LINDEX', M, 0)
return {redis.call('LLEN', M), first and seq_of(first) or 0, (newest(s)), s.created, s.updated,
        s.expires, s.bytes, redis.call('HGET', S, 'meta')}
