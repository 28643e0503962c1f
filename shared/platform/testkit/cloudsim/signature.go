package cloudsim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verify checks the signature of a request with AWS Signature Version 4 and returns the id of the access key. The request is
// one of a server, whose body has been read.
func (c *Clouds) Verify(r *http.Request, body []byte, service, region string, now time.Time) (accessKey string, err error) {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return "", errors.New("cloudsim: not signed")
	}
	fields := map[string]string{}
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}

	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[2] != region || scope[3] != service || scope[4] != "aws4_request" {
		return "", fmt.Errorf("cloudsim: signed for %v, not for %s in %s", scope, service, region)
	}
	accessKey, date := scope[0], r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || at.Format("20060102") != scope[1] || at.Sub(now).Abs() > 5*time.Minute {
		return "", fmt.Errorf("cloudsim: signed at %q, not now", date)
	}
	secret, ok := c.secretOf(accessKey, r.Header.Get("X-Amz-Security-Token"))
	if !ok {
		return "", fmt.Errorf("cloudsim: the access key %s is not known or has ended", accessKey)
	}

	signed := strings.Split(fields["SignedHeaders"], ";")
	for _, must := range mustBeSigned(r) {
		if !slices.Contains(signed, must) {
			return "", fmt.Errorf("cloudsim: the header %s is not signed", must)
		}
	}

	digest := sha256.Sum256([]byte(canonical(r, body, signed)))
	toSign := "AWS4-HMAC-SHA256\n" + date + "\n" + strings.Join(scope[1:], "/") + "\n" + hex.EncodeToString(digest[:])
	key := []byte("AWS4" + secret)
	for _, part := range scope[1:] {
		key = keyed(key, part)
	}
	if want := hex.EncodeToString(keyed(key, toSign)); !hmac.Equal([]byte(want), []byte(fields["Signature"])) {
		return "", errors.New("cloudsim: the signature is wrong")
	}

	return accessKey, nil
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// mustBeSigned returns the headers whose change would change the meaning of the call.
func mustBeSigned(r *http.Request) []string {
	must := []string{"host"}
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") {
			must = append(must, name)
		}
	}
	return must
}

// canonical returns the canonical request.
func canonical(r *http.Request, body []byte, signed []string) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n")
	path := r.URL.EscapedPath()
	if path == "" {
		path = "/"
	}
	b.WriteString(escape(path, true) + "\n")

	query, _ := url.ParseQuery(r.URL.RawQuery)
	var pairs []string
	for name, values := range query {
		for _, value := range values {
			pairs = append(pairs, escape(name, false)+"="+escape(value, false))
		}
	}
	slices.Sort(pairs)
	b.WriteString(strings.Join(pairs, "&") + "\n")

	for _, name := range signed {
		values := r.Header.Values(name)
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			values = []string{strconv.Itoa(len(body))}
		}
		for i := range values {
			values = slices.Clone(values)
			values[i] = strings.Join(strings.Fields(values[i]), " ")
		}
		b.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}

	digest := sha256.Sum256(body)
	b.WriteString("\n" + strings.Join(signed, ";") + "\n" + hex.EncodeToString(digest[:]))
	return b.String()
}

// escape encodes all bytes but those that RFC 3986 calls unreserved, and slashes if they are kept.
func escape(text string, keepSlash bool) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.IndexByte("-_.~", c) >= 0, c == '/' && keepSlash:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
