package signature_test

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"modelgateway/controlplane/adminclient/signature"
)

// The example comes from the specification of Standard Webhooks.
func TestSignatureOfTheSpecificationsExample(t *testing.T) {
	t.Parallel()
	secret, err := signature.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	signature.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), secret)
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := h.Get("webhook-signature"); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestVerifyChecksHeadersTimeAndSignature(t *testing.T) {
	t.Parallel()
	older, newer, stranger := signature.NewSecret(), signature.NewSecret(), signature.NewSecret()
	now, body := time.Unix(1_800_000_000, 0), []byte(`{"type":"account.low_balance"}`)
	sign := func(secrets ...signature.Secret) http.Header {
		h := http.Header{}
		signature.Sign(h, "evt_1", now, body, secrets...)
		return h
	}
	without := func(name string) http.Header {
		h := sign(newer)
		h.Del(name)
		return h
	}
	with := func(name, value string) http.Header {
		h := sign(newer)
		h.Set(name, value)
		return h
	}
	for name, test := range map[string]struct {
		header http.Header
		body   string
		now    time.Time
		known  []signature.Secret
		want   error
	}{
		"good":                 {sign(newer), string(body), now, []signature.Secret{newer}, nil},
		"both sign, old known": {sign(newer, older), string(body), now, []signature.Secret{older}, nil},
		"one signs, both known": {
			sign(older), string(body), now, []signature.Secret{newer, older}, nil,
		},
		"at the tolerance":     {sign(newer), string(body), now.Add(signature.Tolerance), []signature.Secret{newer}, nil},
		"other versions":       {with("webhook-signature", "v2,xx v1a,yy "+sign(newer).Get("webhook-signature")), string(body), now, []signature.Secret{newer}, nil},
		"too old":              {sign(newer), string(body), now.Add(signature.Tolerance + time.Second), []signature.Secret{newer}, signature.ErrTime},
		"from the future":      {sign(newer), string(body), now.Add(-signature.Tolerance - time.Second), []signature.Secret{newer}, signature.ErrTime},
		"unknown secret":       {sign(stranger), string(body), now, []signature.Secret{newer, older}, signature.ErrSignature},
		"no secret":            {sign(newer), string(body), now, nil, signature.ErrSignature},
		"altered body":         {sign(newer), string(body) + " ", now, []signature.Secret{newer}, signature.ErrSignature},
		"altered id":           {with("webhook-id", "evt_2"), string(body), now, []signature.Secret{newer}, signature.ErrSignature},
		"altered time":         {with("webhook-timestamp", strconv.FormatInt(now.Unix()+1, 10)), string(body), now, []signature.Secret{newer}, signature.ErrSignature},
		"no id":                {without("webhook-id"), string(body), now, []signature.Secret{newer}, signature.ErrHeaders},
		"no time":              {without("webhook-timestamp"), string(body), now, []signature.Secret{newer}, signature.ErrHeaders},
		"no signature":         {without("webhook-signature"), string(body), now, []signature.Secret{newer}, signature.ErrHeaders},
		"time is not a number": {with("webhook-timestamp", "soon"), string(body), now, []signature.Secret{newer}, signature.ErrHeaders},
	} {
		id, err := signature.Verify(test.header, []byte(test.body), test.now, test.known...)
		if !errors.Is(err, test.want) || (err == nil) != (id == "evt_1") {
			t.Errorf("%s: got %q, %v; want %v", name, id, err, test.want)
		}
	}
}

func TestSecretIsParsedAndNeverPrinted(t *testing.T) {
	t.Parallel()
	s := signature.NewSecret()
	again, err := signature.ParseSecret(s.Text() + "\n")
	if err != nil || again.Text() != s.Text() {
		t.Errorf("parsed as another secret: %v", err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, s); text != "signature.Secret" {
			t.Errorf("%s prints %q", verb, text)
		}
	}
	for _, text := range []string{"", "whsec_", "whsec_c2hvcnQ=", "whsec_?", s.Text()[len("whsec_"):]} {
		if _, err := signature.ParseSecret(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
