-- Put in front of every script. KEYS: session hash, records, ids, burnt:<offer>. ARGV: key text, offer, minute, …
local S, M, I = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function int(n) return string.format('%.0f', n) end                  -- `..` would round above 14 digits
local function seq_of(record) return (struct.unpack('>I8', record)) end
local function size_of(record) return #record - 49 - string.byte(record, 49) end    -- of the payload

local function living()
  local f = redis.call('HMGET', S, 'inc', 'seq', 'bytes', 'calls', 'sv', 'sf', 'minute', 'expires', 'created')
  local expires = tonumber(f[8] or nil)
  if not f[1] or (expires and expires <= now) then return nil end
  return { inc = f[1], seq = tonumber(f[2]), bytes = tonumber(f[3]), calls = tonumber(f[4]), sv = tonumber(f[5]),
           sf = f[6], minute = tonumber(f[7]), expires = expires, created = f[9] }
end

-- Asked when every check has passed. A write needs the session's index entry, with its incarnation and the minute
-- to be stored, to be there already; what is missing is answered: {'index', incarnation or '', minute}.
local function admit(s, begins)
  local minute, offer = math.floor(now / 60000000), tonumber(ARGV[3])
  if s and s.minute >= minute then s.updated = math.max(now, s.minute * 60000000) return s end
  local timely = offer == minute or (offer == minute - 1 and now - minute * 60000000 < 5000000)
  if s and not (timely and ARGV[2] == s.inc) then return nil, {'index', s.inc, int(minute)} end
  if not s then
    if not begins then return nil end
    if not timely or ARGV[2] == '' or redis.call('EXISTS', KEYS[4]) == 1 then return nil, {'index', '', int(minute)} end
    redis.call('UNLINK', S, M, I)                                          -- what expired here: freed in the background
    s = { inc = ARGV[2], seq = 0, bytes = 0, calls = 0, sv = 0, sf = false, created = int(now) }
  end
  s.minute, s.updated = offer, math.min(now, offer * 60000000 + 59999999)
  return s
end

local function save(s)                                                     -- the counters; the expiry last, by pcall
  redis.call('HSET', S, 'key', ARGV[1], 'inc', s.inc, 'seq', int(s.seq), 'bytes', int(s.bytes), 'calls', int(s.calls),
    'sv', int(s.sv), 'minute', int(s.minute), 'updated', int(s.updated), 'created', s.created)
  if not s.expires then return end
  redis.call('HSET', S, 'expires', int(s.expires))
  for _, key in ipairs({S, M, I}) do redis.pcall('PEXPIREAT', key, int(math.ceil(s.expires / 1000))) end
end

-- Where the first record with a seq of at least `seq` stands. No gaps: no search. Gaps (pops): a binary search.
local function position(seq)
  local count = redis.call('LLEN', M)
  if count == 0 then return 0 end
  local first, last = seq_of(redis.call('LINDEX', M, 0)), seq_of(redis.call('LINDEX', M, -1))
  if seq > last then return count end
  local low, high = math.max(0, count - 1 - (last - seq)), math.max(0, math.min(count - 1, seq - first))
  while low < high do
    local middle = math.floor((low + high) / 2)
    if seq_of(redis.call('LINDEX', M, middle)) >= seq then high = middle else low = middle + 1 end
  end
  return low
end

-- Of the records in ARGV[from…]: the seq of each that is there with a seq up to `top` (0: new), and the clashes.
local function look_up(from, top)
  local known, clashes, new = {}, {}, 0
  for at = from, #ARGV do
    local seq = tonumber(redis.call('HGET', I, string.sub(ARGV[at], 1, 16)) or 0)
    if seq > top then seq = 0 end
    if seq == 0 then new = new + 1
    elseif string.sub(redis.call('LINDEX', M, position(seq)), 33, 48) ~= string.sub(ARGV[at], 17, 32) then
      clashes[#clashes + 1] = at - from
    end
    known[#known + 1] = seq
  end
  return known, clashes, new
end

local function push(s, from, known)                                        -- writes the new ones, fills `known` up
  for index, seq in ipairs(known) do
    if seq == 0 then
      local record = ARGV[from + index - 1]
      s.seq = s.seq + 1
      known[index] = s.seq
      redis.call('RPUSH', M, struct.pack('>I8I8', s.seq, s.updated) .. record)
      redis.call('HSET', I, string.sub(record, 1, 16), int(s.seq))
      s.bytes = s.bytes + #record - 33 - string.byte(record, 33)
    end
  end
end

local function drop(s, from, to)                                           -- one end of the list; how many went
  for start = from, to, 500 do
    for _, record in ipairs(redis.call('LRANGE', M, start, math.min(start + 499, to))) do
      redis.call('HDEL', I, string.sub(record, 17, 32))
      s.bytes = s.bytes - size_of(record)
    end
  end
  if from > 0 then redis.call('LTRIM', M, 0, from - 1) else redis.call('LTRIM', M, to + 1, -1) end
  return to - from + 1
end

local function newest()
  local record = redis.call('LINDEX', M, -1)
  return record and seq_of(record) or 0, record
end
