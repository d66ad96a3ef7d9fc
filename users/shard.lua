-- Writes one user shard: all of it or nothing. KEYS: the shard's o:, e:,
-- open-cases and quarantine key, then the records to set or delete. ARGV: see
-- arguments() in write.go. Answers 1, or 0 when somebody else has written
-- meanwhile.
if (redis.call('HGET', KEYS[1], 'v') or '') ~= ARGV[1] then
  return 0
end
if ARGV[3] == '1' then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
end
redis.call('HSET', KEYS[1], 'v', ARGV[2])
if ARGV[4] ~= '' then
  redis.call('SET', KEYS[2], ARGV[4])
end
local i = 5
local function block(each)
  local last = i + tonumber(ARGV[i])
  while i < last do
    i = i + 1
    each(ARGV[i])
  end
  i = i + 1
end
local field = nil
block(function(arg)
  if field then
    redis.call('HSET', KEYS[1], field, arg)
    field = nil
  else
    field = arg
  end
end)
local key = 4
block(function(value)
  key = key + 1
  if value == '' then
    redis.call('DEL', KEYS[key])
  else
    redis.call('SET', KEYS[key], value)
  end
end)
for set = 3, 4 do
  block(function(member) redis.call('SADD', KEYS[set], member) end)
  block(function(member) redis.call('SREM', KEYS[set], member) end)
end
return 1
