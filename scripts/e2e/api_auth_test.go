package e2e

import (
	"net/http"
	"strings"
	"testing"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/apikey"
)

// every returns one request to each endpoint that needs a key, without a key.
func every() []rig.Request {
	all := []rig.Request{{Path: "/v1/balance"}, {Path: "/v1/videos/video_1"}, {Path: "/v1/videos/video_1/content"}}
	for _, e := range generations {
		all = append(all, rig.Request{Path: e.path, Body: e.body(e.model)})
	}
	return all
}

func TestEveryRequestButModelsNeedsAKey(t *testing.T) {
	a := newAPI(t)
	for _, q := range every() {
		a.refused(t, q, refusal{401, "invalid_api_key", ""})
	}
	if answer := a.Do(t, rig.Request{Path: "/v1/models"}); answer.Status != http.StatusOK {
		t.Errorf("models without a key: got %s", answer)
	}
}

func TestBothKeyHeadersWorkOnEveryEndpoint(t *testing.T) {
	a := newAPI(t)
	key := a.account.Key
	for _, q := range append(every(), rig.Request{Path: "/v1/models"}) {
		for _, header := range []http.Header{
			{"Authorization": {"Bearer " + key}},
			{"Authorization": {"bearer " + key}},
			{"X-Api-Key": {key}},
			{"Authorization": {"Bearer " + key}, "X-Api-Key": {"mgw_other"}}, // a bearer token wins
			{"Authorization": {"Basic abc"}, "X-Api-Key": {key}},
		} {
			q.Header = header
			answer := a.Do(t, q)
			if answer.Status == http.StatusUnauthorized {
				t.Errorf("%s with %v: got %s; want the key to be accepted", q.Path, header, answer)
			}
		}
	}
}

func TestMissingUnknownOrRevokedKeyIsUnauthorized(t *testing.T) {
	a := newAPI(t)
	id, revoked := a.account.NewKey(t, "")
	a.account.Revoke(t, id)
	last := a.account.Key[len(a.account.Key)-1:]
	damaged := strings.TrimSuffix(a.account.Key, last) + map[bool]string{true: "B", false: "A"}[last == "A"]
	for _, key := range []string{"", "x", "mgw_", damaged, apikey.Generate(), revoked, a.account.Key + "0", strings.Repeat("k", 5000)} {
		for _, q := range every() {
			q.Key = key
			a.refused(t, q, refusal{401, "invalid_api_key", ""})
		}
	}
	suspended := a.Account(t, rig.AccountSpec{})
	suspended.Suspend(t)
	for proxy := range a.Proxies {
		a.AwaitStatus(t, rig.Request{Proxy: proxy, Path: "/v1/balance", Key: suspended.Key}, http.StatusUnauthorized)
	}
}

func TestKeySentToModelsMustBeValid(t *testing.T) {
	a := newAPI(t)
	for _, key := range []string{"x", apikey.Generate()} {
		a.refused(t, rig.Request{Path: "/v1/models", Key: key}, refusal{401, "invalid_api_key", ""})
		a.refused(t, rig.Request{Path: "/v1/models", Header: http.Header{"X-Api-Key": {key}}}, refusal{401, "invalid_api_key", ""})
	}
}

func TestKeyWithReachedLimitIsForbidden(t *testing.T) {
	a := newAPI(t)
	_, key := a.account.NewKey(t, "0.000000001")
	for _, e := range generations[:4] {
		a.refused(t, rig.Request{Path: e.path, Key: key, Body: e.body(e.model)}, refusal{403, "spend_limit_exceeded", ""})
	}
	// The key still authenticates.
	if answer := a.Do(t, rig.Request{Path: "/v1/balance", Key: key}); answer.Status != http.StatusOK {
		t.Errorf("the balance with a spent key: got %s", answer)
	}
}

func TestKeysAreIssuedAndRevokedThroughTheAdminAPI(t *testing.T) {
	a := newAPI(t)
	id, key := a.account.NewKey(t, "") // through the admin API, as the cabinet does
	if answer := a.Do(t, rig.Request{Path: "/v1/balance", Key: key}); answer.Status != http.StatusOK {
		t.Errorf("a new key: got %s", answer)
	}
	a.account.Revoke(t, id)
	a.refused(t, rig.Request{Path: "/v1/balance", Key: key}, refusal{401, "invalid_api_key", ""})
}
