DROP TABLE api_keys;
DROP FUNCTION announce_api_key_change();
DROP TABLE tenants;
