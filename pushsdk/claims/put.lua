-- A value in Redis is the token (32 digits), then the record.
-- ARGV: the ttl in milliseconds, then the new value and the expected tokens of each key.
local answers = {}
for i, key in ipairs(KEYS) do
    local value, expected = ARGV[2 * i], ARGV[2 * i + 1]
    local stored = redis.call('GET', key)
    local token = stored and string.sub(stored, 1, 32)
    if not stored or token == string.sub(value, 1, 32) or #token == 32 and string.find(expected, token, 1, true) then
        redis.call('SET', key, value, 'PX', ARGV[1])
        stored = false
    end
    answers[i] = stored
end
return answers
