-- KEYS: 1 one shard of a namespace's index. ARGV: 1 minute or '', 2 the member to start behind, 3 limit
if ARGV[1] == '' then return redis.call('ZRANGE', KEYS[1], 0, ARGV[3] - 1, 'WITHSCORES') end
local function behind(member)                                              -- by bytes: Lua's `>` follows the locale
  for at = 1, math.min(#member, #ARGV[2]) do
    local left, right = string.byte(member, at), string.byte(ARGV[2], at)
    if left ~= right then return left > right end
  end
  return #member > #ARGV[2]
end
local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(-' .. ARGV[1])
local high = low + redis.call('ZCOUNT', KEYS[1], '-' .. ARGV[1], '-' .. ARGV[1])
while low < high do
  local middle = math.floor((low + high) / 2)
  if behind(redis.call('ZRANGE', KEYS[1], middle, middle)[1]) then high = middle else low = middle + 1 end
end
return redis.call('ZRANGE', KEYS[1], low, low + ARGV[3] - 1, 'WITHSCORES')
