-- ARGV: … 4 format, 5 payload, 6 expected version or '', 7 begin ttl or '', then the replaceable formats
local s = living()
local replaceable, version = not (s and s.sf), s and s.sv or 0
for at = 8, #ARGV do replaceable = replaceable or ARGV[at] == s.sf end
if not replaceable then return {'refused', 'format', ''} end
if ARGV[6] ~= '' and tonumber(ARGV[6]) ~= version then return {'refused', 'version', version} end
local admitted, missing = admit(s, true)
if not admitted then return missing end
if not s and ARGV[7] ~= '' then admitted.expires = now() + ARGV[7] end
admitted.sv = version + 1
save(admitted, 'sf', ARGV[4], 'sp', ARGV[5])
return {'ok', admitted.inc, admitted.sv}
