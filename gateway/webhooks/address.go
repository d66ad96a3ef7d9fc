package webhooks

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
)

// special are networks that netip does not know as such and that are not the public
// internet (the registries of RFC 6890), or lead from it to addresses inside.
var special = prefixes(
	"0.0.0.0/8",        // this network
	"100.64.0.0/10",    // carriers' NAT; some clouds have their metadata here
	"192.0.0.0/24",     // protocol assignments; Oracle's metadata
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"240.0.0.0/4",      // reserved, and broadcast
	"168.63.129.16/32", // Azure's own services, at an address that looks public
	"::/96",            // IPv4 in IPv6, as it was
	"64:ff9b:1::/48",   // the same, inside
	"100::/64",         // discarded
	"2001::/23",        // protocol assignments, with Teredo
	"2001:db8::/32",    // documentation
	"2002::/16",        // IPv4 by 6to4
	"3fff::/20",        // documentation
	"5f00::/16",        // segment routing
	"fec0::/10",        // site-local, as it was
)

// nat64 is where networks without IPv4 have it: the last four bytes are the address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// global is all that is handed out of IPv6 to the public internet (RFC 4291, section 2.4, and IANA).
var global = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

// CheckAddress refuses every address that is not of the public internet: private, of this
// machine or link, of carriers' NAT, of clouds' metadata, multicast, reserved; and IPv6
// addresses that stand for such an IPv4 address.
func CheckAddress(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	inside := !a.IsValid() || a.Is6() && !global.Contains(a) || !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast()
	for _, p := range special {
		inside = inside || p.Contains(a)
	}
	if inside {
		return fmt.Errorf("%s is no address of the public internet", a)
	}
	return nil
}

// control returns what a dialer asks when it has an address, after the look-up of the
// name and before it connects. So a name that had a public address before, or has one
// for others, opens nothing.
func control(check func(netip.Addr) error) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("the address to dial: %w", err)
		}
		return check(at.Addr())
	}
}

// checkURL refuses what can never be called, when the file is read.
func checkURL(text string, check func(netip.Addr) error) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("no URL") // what it says may be secret
	case u.Scheme != "https":
		return errors.New("want https")
	case u.Host == "" || u.Hostname() == "":
		return errors.New("no host")
	case u.User != nil:
		return errors.New("has a user; put what authorizes into the path, or use the signature")
	case u.Fragment != "":
		return errors.New("has a fragment")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("no port from 1 to 65535")
		}
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return check(a)
	}
	return nil
}
