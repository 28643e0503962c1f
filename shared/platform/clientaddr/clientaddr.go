// Package clientaddr reads the address of the client from a request, also behind reverse proxies.
package clientaddr

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// Reader reads the client's address from a request. The zero address means that it is not known.
type Reader func(*http.Request) netip.Addr

// Behind returns a Reader. Behind a trusted proxy the client's address is the last one of X-Forwarded-For that no trusted proxy
// has; the header of anybody else is ignored. If an entry is no address, it is not known: the address of the trusted proxy must
// not stand for a client's.
func Behind(trusted []netip.Prefix) Reader {
	read := echo.ExtractIPDirect()
	if len(trusted) > 0 {
		options := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
		for _, p := range trusted {
			network := net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
			options = append(options, echo.TrustIPRange(&network))
		}
		read = echo.ExtractIPFromXFFHeader(options...)
	}

	return func(r *http.Request) netip.Addr {
		from, err := netip.ParseAddr(read(r))
		if err != nil {
			return netip.Addr{}
		}
		from = from.Unmap()
		isProxy := slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(from) })
		if isProxy && slices.ContainsFunc(r.Header.Values(echo.HeaderXForwardedFor), isMalformed) {
			return netip.Addr{}
		}
		return from
	}
}

// isMalformed reports whether a value of X-Forwarded-For has an entry that is no address.
func isMalformed(list string) bool {
	if strings.TrimSpace(list) == "" {
		return false
	}
	for entry := range strings.SplitSeq(list, ",") {
		if net.ParseIP(strings.Trim(strings.TrimSpace(entry), "[]")) == nil {
			return true
		}
	}
	return false
}

// ParseNetworks parses networks in CIDR notation that are separated by commas or spaces.
func ParseNetworks(list string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", text)
		}
		networks = append(networks, p.Masked())
	}
	return networks, nil
}
