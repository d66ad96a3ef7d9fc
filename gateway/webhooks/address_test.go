package webhooks

import (
	"net/netip"
	"strings"
	"testing"
)

// Only what is on the public internet may be called, however the address is written.
func TestCheckAddress(t *testing.T) {
	for _, s := range strings.Fields(`127.0.0.1 127.255.255.254 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 169.254.0.1 100.64.0.1 100.100.100.200 100.127.255.255
		0.0.0.0 0.1.2.3 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 168.63.129.16
		::1 :: ::ffff:100.64.0.1 ::ffff:168.63.129.16 ::ffff:0.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 fe80::1 fe80::1%eth0 fec0::1 fc00::1 fd00:ec2::254 ff02::1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1
		2001:db8::1 2001::1 2002:7f00:1:: 100::1 3fff::1 5f00::1 ::ffff:0:a00:1 ::ffff:0:a9fe:a9fe 100:0:0:1::1 4000::1 1fff::1 e000::1`) {
		if err := CheckAddress(netip.MustParseAddr(s)); err == nil {
			t.Errorf("%s may be called", s)
		}
	}
	for _, s := range strings.Fields("1.1.1.1 8.8.8.8 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.167.1.1 168.63.129.17 ::ffff:8.8.8.8 2606:4700:4700::1111 2a00:1450::1 64:ff9b::808:808") {
		if err := CheckAddress(netip.MustParseAddr(s)); err != nil {
			t.Error(err)
		}
	}
	if CheckAddress(netip.Addr{}) == nil {
		t.Error("no address may be called")
	}
}

// What a dialer would connect to is checked, and not what a name said before.
func TestControl(t *testing.T) {
	c := control(CheckAddress)
	for address, ok := range map[string]bool{"1.1.1.1:443": true, "[::ffff:10.0.0.1]:443": false, "[fe80::1%lo]:443": false, "localhost:443": false, "": false} {
		if err := c("tcp", address, nil); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestCheckURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://hooks.example.com/push?a=b": true, "https://hooks.example.com:8443": true, "https://8.8.8.8/": true,
		"http://hooks.example.com/": false, "https://": false, "https:///x": false, "https://:443/": false, "https://user:word@hooks.example.com/": false,
		"https://hooks.example.com/#x": false, "https://hooks.example.com:99999/": false, "https://hooks.example.com:0/": false, "https://hooks.example.com:65535/": true, "https://127.0.0.1/": false, "https://[::ffff:127.0.0.1]/": false, "https://[fe80::1%25eth0]/": false, "ftp://hooks.example.com": false, "hooks.example.com": false, "https://a b": false,
	} {
		if err := checkURL(url, CheckAddress); (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		} else if err != nil && strings.Contains(err.Error(), "word") {
			t.Errorf("the error has a secret: %v", err)
		}
	}
}
