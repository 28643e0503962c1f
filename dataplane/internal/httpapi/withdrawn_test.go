package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"

	"modelgateway/shared/catalogkv"
	"modelgateway/shared/price"
	"modelgateway/shared/subject"
)

// firstRead is a body that calls a function when its first byte is read. With Expect, this is when the gateway has
// begun to read it.
type firstRead struct {
	io.Reader
	once sync.Once
	do   func()
}

func (f *firstRead) Read(p []byte) (int, error) {
	f.once.Do(f.do)
	return f.Reader.Read(p)
}

// privateText is the model text, granted to the account alone.
func privateText(m *catalogkv.Model) { m.Public = m.ID != "text" }

// withdraw deletes the account's grant for the model.
func (g *gateway) withdraw() {
	g.set(subject.KindGrant, theAccount, catalogkv.Grant{AccountID: theAccount})
	g.apply()
}

// The request waits for its body or for its reservation while the change is reported as effective.
func TestModelWithdrawnWhileTheRequestWaitsIsNotServed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change     func(g *gateway)
		status     int
		code       string
		retryAfter string
	}{
		"grant":    {(*gateway).withdraw, http.StatusNotFound, "model_not_found", ""},
		"provider": {func(g *gateway) { g.set(subject.KindProvider, "prv_0", catalogkv.Provider{ID: "prv_0"}); g.apply() }, http.StatusServiceUnavailable, "", ""},
		"maintenance": {func(g *gateway) {
			g.set(subject.KindModel, "text", catalogkv.Model{
				ID: "text", Type: catalogkv.Text, Enabled: true, Public: true, Maintenance: &catalogkv.Maintenance{},
				Prices: []catalogkv.ScheduledPrice{{Sheet: price.Sheet{Version: 1, Rates: price.Rates{price.Input: 1, price.Output: 1}}}},
				Routes: []catalogkv.Route{{ID: "rte_0_text", Provider: "prv_0", Enabled: true, Formats: []catalogkv.Format{catalogkv.Chat}}},
			})
			g.apply()
		}, http.StatusServiceUnavailable, "service_unavailable", "1"},
	}
	body := `{"model":"text","messages":[{"role":"user","content":"hi"}]}`
	for name, tt := range tests {
		for _, waits := range []string{"body", "hold"} {
			t.Run(name+"/"+waits, func(t *testing.T) {
				t.Parallel()
				g := newGatewayWith(t, options{model: privateText}, jsonAnswer(http.StatusOK, chatJSON))
				g.set(subject.KindGrant, theAccount, catalogkv.Grant{AccountID: theAccount, Models: []string{"text"}})
				g.apply()
				read := &firstRead{Reader: bytes.NewReader([]byte(body)), do: func() {}}
				if waits == "body" {
					read.do = func() { tt.change(g) }
				} else {
					g.plane.set(func(p *controlPlane) { p.onLeaseRequest = sync.OnceFunc(func() { tt.change(g) }) })
				}
				response := g.begin(t.Context(), http.MethodPost, "/v1/chat/completions", read, "Expect", "100-continue")
				defer func() { _ = response.Body.Close() }()
				data, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				got := answer{response.StatusCode, response.Header, string(data)}.apiError(t)
				if got.Status != tt.status || got.Code != tt.code || got.RetryAfter != tt.retryAfter {
					t.Errorf("got %+v; want %d %q", got, tt.status, tt.code)
				}
				if n := len(g.sims[0].received()); n != 0 {
					t.Errorf("the provider got %d requests", n)
				}
				if events := g.spool.all(); len(events) != 0 {
					t.Errorf("got events %+v", events)
				}
			})
		}
	}
}
