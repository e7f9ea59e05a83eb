-- KEYS: 4 staged records, 5 staged ids. ARGV: … 4 from where (how many are staged by now), then whole records
if redis.call('LLEN', KEYS[4]) ~= tonumber(ARGV[4]) then return 0 end      -- its lease ran out, or it was purged
for start = 5, #ARGV, CHUNK do
  local rows, fields = {}, {}
  for at = start, math.min(start + CHUNK - 1, #ARGV) do
    rows[#rows + 1] = ARGV[at]
    fields[#fields + 1] = string.sub(ARGV[at], 17, 32)
    fields[#fields + 1] = seq_of(ARGV[at])
  end
  put(KEYS[4], rows, KEYS[5], fields)
end
for at = 4, 5 do redis.pcall('PEXPIRE', KEYS[at], 3600000) end
return math.floor(now() / 60000000)
