-- Put in front of every script. KEYS: session hash, records, ids, …; with an offer, last: burnt:<offer>.
-- ARGV: key text (with an offer), offer, minute, …
local S, M, I = KEYS[1], KEYS[2], KEYS[3]
local CHUNK = 500                                                          -- so many values at once fit Lua's stack
local clock
local function now()                                                       -- asked once, and only where it matters
  clock = clock or redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end
local function seq_of(record) return (struct.unpack('>I8', record)) end
local function size_of(record) return #record - 49 - string.byte(record, 49) end    -- of the payload

-- Field `n`: seq, payload bytes, calls, snapshot version, minute, updated, created, expiry (0: none)
local function living()
  local f = redis.call('HMGET', S, 'inc', 'n', 'sf')
  if not f[1] then return nil end
  local s = { inc = f[1], sf = f[3] }
  s.seq, s.bytes, s.calls, s.sv, s.minute, s.updated, s.created, s.expires = struct.unpack('>I8I8I8I8I8I8I8I8', f[2])
  if s.expires > 0 and s.expires <= now() then return nil end
  return s
end

-- Asked when every check has passed. A write needs the session's index entry, with its incarnation and the minute
-- to be stored, to be there already; what is missing is answered: {'index', incarnation or '', minute}.
local function admit(s, begins)
  local time, offer = now(), tonumber(ARGV[3])
  local minute = math.floor(time / 60000000)
  if s and s.minute >= minute then s.updated = math.max(time, s.minute * 60000000) return s end
  local timely = offer == minute or (offer == minute - 1 and time - minute * 60000000 < 5000000)
  if s and not (timely and ARGV[2] == s.inc) then return nil, {'index', s.inc, minute} end
  if not s then
    if not begins then return nil end
    if not timely or ARGV[2] == '' or redis.call('EXISTS', KEYS[#KEYS]) == 1 then return nil, {'index', '', minute} end
    redis.call('UNLINK', S, M, I)                                          -- what expired here: freed in the background
    s = { inc = ARGV[2], seq = 0, bytes = 0, calls = 0, sv = 0, sf = false, created = time, expires = 0, begins = true }
  end
  s.minute, s.updated = offer, math.min(time, offer * 60000000 + 59999999)
  return s
end

-- Redis's own expiry, which frees what nobody asks for any more. Where it is refused the field holds alone; an older
-- one must then not take the session away too early.
local function lapse(at)
  for _, key in ipairs({S, M, I}) do
    local answer = redis.pcall('PEXPIREAT', key, math.ceil(at / 1000))
    if type(answer) == 'table' and answer.err then redis.pcall('PERSIST', key) end
  end
end

local function save(s, ...)                                                -- the counters and more; the expiry last
  local n = struct.pack('>I8I8I8I8I8I8I8I8', s.seq, s.bytes, s.calls, s.sv, s.minute, s.updated, s.created, s.expires)
  if s.begins then
    redis.call('HSET', S, 'key', ARGV[1], 'inc', s.inc, 'n', n, ...)
  else
    redis.call('HSET', S, 'n', n, ...)
  end
  if s.expires > 0 then lapse(s.expires) end
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
local function look_up(s, from, top)
  if not s then top = 0 end                                                -- what lies there has expired
  local known, clashes, new = {}, {}, 0
  for start = from, #ARGV, CHUNK do
    local ids = {}
    for at = start, math.min(start + CHUNK - 1, #ARGV) do ids[at - start + 1] = string.sub(ARGV[at], 1, 16) end
    for index, seq in ipairs(redis.call('HMGET', I, unpack(ids))) do
      seq = tonumber(seq or 0)
      local record = seq > 0 and seq <= top and redis.call('LINDEX', M, position(seq))
      if not record or string.sub(record, 17, 32) ~= ids[index] then       -- only its id was ever written
        seq, new = 0, new + 1
      elseif string.sub(record, 33, 48) ~= string.sub(ARGV[start + index - 1], 17, 32) then
        clashes[#clashes + 1] = start + index - 1 - from
      end
      known[#known + 1] = seq
    end
  end
  return known, clashes, new
end

-- Where a user may not run one of a write's commands, its messages stay as they were. So `put` writes ids first: one
-- that leads to no record, or to another's, counts as new. And what drops messages first tries, without an effect:
local function try(s)
  redis.call('HSET', S, 'inc', s.inc)
  redis.call('HDEL', I, '')
  redis.call('LTRIM', M, 0, -1)
end

local function put(list, rows, hash, fields)
  redis.call('HSET', hash, unpack(fields))
  redis.call('RPUSH', list, unpack(rows))
end

local function push(s, from, known)                                        -- writes the new ones, fills `known` up
  local rows, fields = {}, {}
  for index, seq in ipairs(known) do
    if seq == 0 then
      local record = ARGV[from + index - 1]
      s.seq, s.bytes = s.seq + 1, s.bytes + #record - 33 - string.byte(record, 33)
      known[index] = s.seq
      rows[#rows + 1] = struct.pack('>I8I8', s.seq, s.updated) .. record
      fields[#fields + 1] = string.sub(record, 1, 16)
      fields[#fields + 1] = s.seq
      if #rows == CHUNK then
        put(M, rows, I, fields)
        rows, fields = {}, {}
      end
    end
  end
  if #rows > 0 then put(M, rows, I, fields) end
end

local function drop(s, from, to)                                           -- one end of the list; how many went
  for start = from, to, CHUNK do
    local rows = redis.call('LRANGE', M, start, math.min(start + CHUNK - 1, to))
    for index, record in ipairs(rows) do
      s.bytes = s.bytes - size_of(record)
      rows[index] = string.sub(record, 17, 32)
    end
    redis.call('HDEL', I, unpack(rows))
  end
  if from > 0 then redis.call('LTRIM', M, 0, from - 1) else redis.call('LTRIM', M, to + 1, -1) end
  return to - from + 1
end

local function newest(s)
  local record = s and redis.call('LINDEX', M, -1)
  return record and seq_of(record) or 0, record
end

local function answer(new, s, known)                                       -- numbers below 14 digits: `..` is exact
  return new .. ' ' .. s.sv .. ' ' .. table.concat(known, ' ')
end
