-- ARGV: … 4 at or ''
local s = living()
if not s then return 0 end
s.expires = ARGV[4] == '' and 0 or math.max(1, tonumber(ARGV[4]))
if s.expires == 0 then
  for _, key in ipairs({S, M, I}) do redis.call('PERSIST', key) end        -- first: if refused, nothing changes
end
save(s)
return 1
