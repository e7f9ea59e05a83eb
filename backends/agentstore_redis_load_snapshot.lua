local s = living()
if not s or not s.sf then return {} end
return {s.sv, s.sf, redis.call('HGET', S, 'sp')}
