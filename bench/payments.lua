-- POST /payments between two random accounts of 1,000, each request under a new key. Anything but 201 is counted as an error.
-- The ids of the accounts stand in the file ACCOUNTS, one a line; KEY_PREFIX makes the keys of one run its own.
local accounts = {}
for id in io.lines(os.getenv("ACCOUNTS")) do accounts[#accounts + 1] = id end
local prefix = os.getenv("KEY_PREFIX")
local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init()
  sent = 0
  math.randomseed(number + 1)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. os.getenv("API_KEY")
end

function request()
  sent = sent + 1
  local a = math.random(#accounts)
  local b = 1 + (a + math.random(0, #accounts - 2)) % #accounts
  wrk.headers["Idempotency-Key"] = prefix .. "-" .. number .. "-" .. sent
  wrk.body = '{"payer_account_id":"' .. accounts[a] .. '","payee_account_id":"' .. accounts[b] .. '","amount":"0.01","currency":"USD"}'
  return wrk.format(nil, "/payments")
end

function done(summary, latency)
  local failed = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format("RESULT %.0f %d %.2f %.2f\n", summary.requests / (summary.duration / 1e6), failed,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
