// Values that somebody may type into the settings: what the page lets through, the agent takes, and the other way round.
// [ option, those that are taken, those that are not ]
export const VALUES = [
  ['autotune.apply', ['ask', 'auto'], []],
  ['autotune.window', ['always', '03:00-06:00', '22:30-05:00', '3:00-6:05'], ['whenever', '03:00', '03:00-03:00', '24:00-06:00', '03:60-06:00', '03:00-06:00-09:00']],
  ['autotune.daily_mbytes', ['0', '1000', '1000000'], ['lots', '-1', '1.5', '1000001', '1e3']],
  ['autotune.threshold_percent', ['0', '2.5', '100'], ['5%', '-1', '101']],
  ['autotune.settle_minutes', ['0', '1440'], ['1441', '10.5', '-1']],
  ['autotune.max_age_days', ['0', '3650'], ['3651', '0.5']],
  ['autotune.quiet_percent', ['0', '10', '99.9'], ['100.1', 'ten']],
  ['autotune.check_minutes', ['1', '59'], ['0', '60', '7.5']],
  ['autotune.max_added_ms', ['0.5', '10'], ['0', '-3', 'fast']],
  ['autotune.reflector', ['9.9.9.9', '2620:fe::fe'], ['9.9.9', 'dns.example', '9.9.9.9/24']],
  ['autotune.server', ['http://192.168.1.2:8080', 'https://example.net'], ['192.168.1.2:8080', 'ftp://example.net', 'http://', 'http://a b']],
  ['autotune.upload_url', ['https://example.net/up'], ['example.net']],
  ['autotune.download_url', ['https://example.net/down'], ['example.net']],
  ['autotune.ca_file', ['/etc/ssl/ours.pem'], ['ours.pem', './ours.pem']],
  ['line.link', ['docsis', 'pppoe-atm', 'lte'], []],
  ['line.sync_upload_kbit', ['1', '18000', '10000000'], ['0', '18.5', '18 Mbit', '10000001']],
  ['line.sync_download_kbit', ['67000'], ['-67000']],
  ['line.metered', ['0', '1'], []],
];
