if not living() then return {} end
return redis.call('HMGET', S, 'sv', 'sf', 'sp')
