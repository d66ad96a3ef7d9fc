package configs

import "strconv"

// CheckFiles opens every file the configuration names: certificates, passwords
// and keys. The error is Problems with the keys' paths. A worker calls it
// before it starts, so that a missing key is noticed at once and not with the
// first push.
func (c *Config) CheckFiles() error {
	var ps Problems
	try := func(path string, err error) {
		if err != nil {
			ps.add(path, "%v", err)
		}
	}
	tryTLS := func(path string, t *TLS) {
		_, err := t.Config()
		try(path, err)
	}
	tryTLS("kafka.tls", &c.Kafka.TLS)
	tryTLS("redis.tls", &c.Redis.TLS)
	tryTLS("cassandra.tls", &c.Cassandra.TLS)
	_, err := c.Kafka.SASL.Password()
	try("kafka.sasl.password_file", err)
	_, err = c.Redis.Password()
	try("redis.password_file", err)
	_, err = c.Cassandra.Password()
	try("cassandra.password_file", err)
	_, err = c.Segments.Token()
	try("segments.token_file", err)
	_, err = c.Segments.S3Credentials()
	try("segments.s3_credentials_file", err)
	_, err = c.Segments.TLSConfig()
	try("segments.ca_file", err)
	for i := range c.Apps {
		at := "apps[" + strconv.Itoa(i) + "]"
		if a := c.Apps[i].APNS; a != nil {
			_, err = a.Key()
			try(at+".apns.key_file", err)
			_, err = a.TLSConfig()
			try(at+".apns.ca_file", err)
		}
		if f := c.Apps[i].FCM; f != nil {
			account, err := f.ServiceAccount()
			try(at+".fcm.service_account_file", err)
			if problem := f.checkTokenURI(account); problem != "" {
				ps.add(at+".fcm.service_account_file", "%s", problem)
			}
			_, err = f.TLSConfig()
			try(at+".fcm.ca_file", err)
		}
		_, err = Secrets(c.Apps[i].Accounts)
		try(at+".accounts", err)
	}
	return ps.orNil()
}

// CheckRun is what `pushworker run` needs beyond a valid configuration: an app
// to send for, and every file there. The registry does without both apps and
// their keys.
func (c *Config) CheckRun() error {
	var ps Problems
	if len(c.Apps) == 0 {
		ps.add("apps", "must have at least one app: without one, every record would be dead-lettered as unknown_app")
	}
	if err, ok := c.CheckFiles().(Problems); ok {
		ps = append(ps, err...)
	}
	return ps.orNil()
}
