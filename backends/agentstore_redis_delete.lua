local existed, inc = living() and 1 or 0, redis.call('HGET', S, 'inc')
redis.call('UNLINK', S, M, I)
return {existed, inc or ''}
