-- KEYS: 5 staged records, 6 staged ids. ARGV: … 4 from where (how many are staged by now), then whole records
if redis.call('LLEN', KEYS[5]) ~= tonumber(ARGV[4]) then return 0 end      -- its lease ran out, or a page was sent twice
for at = 5, #ARGV do
  redis.call('RPUSH', KEYS[5], ARGV[at])
  redis.call('HSET', KEYS[6], string.sub(ARGV[at], 17, 32), int(seq_of(ARGV[at])))
end
for at = 5, 6 do redis.pcall('PEXPIRE', KEYS[at], 3600000) end
return 1
