-- ARGV: … 4 at or ''
if not living() then return 0 end
if ARGV[4] == '' then
  redis.call('HDEL', S, 'expires')
  for _, key in ipairs({S, M, I}) do redis.pcall('PERSIST', key) end
else
  redis.call('HSET', S, 'expires', ARGV[4])
  for _, key in ipairs({S, M, I}) do redis.pcall('PEXPIREAT', key, int(math.ceil(ARGV[4] / 1000))) end
end
return 1
