package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/adminclient"
	"modelgateway/scripts/e2e/rig"
	"modelgateway/shared/money"
)

func TestKeyCanBeRevealedAtAnyTime(t *testing.T) {
	a := newAPI(t)
	for range 2 {
		answer, err := a.Admin.RevealKey(t.Context(), a.account.KeyID)
		if err != nil || answer.Value.Secret != a.account.Key {
			t.Fatalf("reveal: got %s, %v; want the key", answer, err)
		}
	}
}

func TestHashOnlyKeyWorksAndCannotBeRevealed(t *testing.T) {
	a := newAPI(t)
	id, secret := a.account.ImportKey(t)
	if answer := a.Do(t, rig.Request{Path: "/v1/balance", Key: secret}); answer.Status != http.StatusOK {
		t.Errorf("with an imported key: got %s; want an answer", answer)
	}
	answer, err := a.Admin.RevealKey(t.Context(), id)
	if adminclient.Code(err) != "not_revealable" {
		t.Errorf("reveal: got %s, %v; want 409 not_revealable", answer, err)
	}
}

func TestSpendLimitLeavesOtherKeysWorking(t *testing.T) {
	a := newAPI(t)
	_, limited := a.account.NewKey(t, "0.000000001")
	body := chat.body("demo-all")
	a.refused(t, rig.Request{Path: chat.path, Key: limited, Body: body}, refusal{403, "spend_limit_exceeded", ""})
	a.ok(t, chat.path, body)
	if b := a.balance(t, 0, limited); b.Key.SpendLimit == nil || *b.Key.SpendLimit != "0.000000001" {
		t.Errorf("the balance with the limited key: got %+v", b)
	}
}

func TestRevocationIsImmediateAndIrreversible(t *testing.T) {
	a := newAPI(t)
	id, key := a.account.NewKey(t, "")
	for proxy := range a.Proxies {
		if answer := a.Do(t, rig.Request{Proxy: proxy, Path: chat.path, Key: key, Body: chat.body("demo-all")}); answer.Status != http.StatusOK {
			t.Fatalf("before: got %s", answer)
		}
	}
	a.account.Revoke(t, id)
	for proxy := range a.Proxies {
		a.refused(t, rig.Request{Proxy: proxy, Path: chat.path, Key: key, Body: chat.body("demo-all")}, refusal{401, "invalid_api_key", ""})
		a.refused(t, rig.Request{Proxy: proxy, Path: "/v1/balance", Key: key}, refusal{401, "invalid_api_key", ""})
	}
	name := "renamed"
	if _, err := a.Admin.UpdateKey(t.Context(), id, nil, adminclient.KeyPatch{Name: &name}); adminclient.Code(err) != "key_revoked" {
		t.Errorf("rename a revoked key: got %v; want key_revoked", err)
	}
	stored, err := a.Admin.GetKey(t.Context(), id)
	if err != nil || stored.Value.Status != adminclient.KeyStatusRevoked {
		t.Errorf("got %s, %v; want it to stay revoked", stored, err)
	}
	a.refused(t, rig.Request{Path: "/v1/balance", Key: key}, refusal{401, "invalid_api_key", ""})
	a.ok(t, chat.path, chat.body("demo-all")) // with another key of the account
}

func TestMissingDisabledOrUngrantedModelIsNotFound(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{Enabled: rig.False()}, rig.Model{Public: rig.False()})
	for _, e := range texts {
		for _, model := range append(models, "no-such-model") {
			a.refusedPost(t, e.path, e.body(model), refusal{404, "model_not_found", "model"})
		}
	}
	a.account.Grant(t, models[1])
	answer := a.AwaitStatus(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(models[1])}, http.StatusOK)
	checkHeaders(t, answer)
	other := a.Account(t, rig.AccountSpec{})
	a.refused(t, rig.Request{Path: chat.path, Key: other.Key, Body: chat.body(models[1])}, refusal{404, "model_not_found", "model"})
}

// listed returns the ids that GET /v1/models lists.
func (a *api) listed(t *testing.T, key string) []string {
	t.Helper()
	answer := a.Do(t, rig.Request{Path: "/v1/models", Key: key})
	var list struct {
		Data []struct{ ID string }
	}
	answer.Decode(t, &list)
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestModelListHasModelsGrantedToTheAccount(t *testing.T) {
	a := newAPI(t)
	models := a.Models(t, rig.Model{}, rig.Model{Public: rig.False()}, rig.Model{Public: rig.False()}, rig.Model{Enabled: rig.False()})
	public, opened, closed, disabled := models[0], models[1], models[2], models[3]
	a.account.Grant(t, opened)
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(opened)}, http.StatusOK)
	for _, tt := range []struct {
		who, key string
		want     map[string]bool
	}{
		{"nobody", "", map[string]bool{public: true, opened: false, closed: false, disabled: false}},
		{"the account", a.account.Key, map[string]bool{public: true, opened: true, closed: false, disabled: false}},
		{"another account", a.Account(t, rig.AccountSpec{}).Key, map[string]bool{public: true, opened: false, closed: false, disabled: false}},
	} {
		ids := a.listed(t, tt.key)
		if !slices.IsSorted(ids) {
			t.Errorf("%s: the list is not sorted: %q", tt.who, ids)
		}
		for model, want := range tt.want {
			if got := slices.Contains(ids, model); got != want {
				t.Errorf("%s: %s is listed: %t; want %t", tt.who, model, got, want)
			}
		}
	}
}

func TestUnchangedModelListIsNotSentAgain(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Public: rig.False()})
	tag := a.Do(t, rig.Request{Path: "/v1/models", Key: a.account.Key}).Header.Get("Etag")
	unlessChanged := rig.Request{Path: "/v1/models", Header: http.Header{"Authorization": {"Bearer " + a.account.Key}, "If-None-Match": {tag}}}
	// Other tests change the public models, so that the first answer may be a new list.
	rig.Await(t, "the list to be the same", func(ctx context.Context) error {
		answer, err := a.Try(ctx, unlessChanged)
		if err == nil && answer.Status != http.StatusNotModified {
			unlessChanged.Header["If-None-Match"] = []string{answer.Header.Get("Etag")}
			err = fmt.Errorf("got %s; want 304", answer)
		}
		return err
	})
	a.account.Grant(t, model)
	a.AwaitStatus(t, rig.Request{Path: chat.path, Key: a.account.Key, Body: chat.body(model)}, http.StatusOK)
	if answer := a.Do(t, unlessChanged); answer.Status != http.StatusOK || !slices.Contains(a.listed(t, a.account.Key), model) {
		t.Errorf("after a grant: got %s; want 200 with the model", answer)
	}
}

func TestBalanceIsSharedByAllKeysOfTheAccount(t *testing.T) {
	a := newAPI(t)
	_, limited := a.account.NewKey(t, "5")
	answer := a.ok(t, chat.path, chat.body("demo-all"))
	cost := a.AwaitUsage(t, answer.RequestID()).Cost
	a.account.AwaitIdle(t)
	for proxy := range a.Proxies {
		own, other := a.balance(t, proxy, a.account.Key), a.balance(t, proxy, limited)
		if own.Balance != other.Balance || own.Object != "balance" || own.Currency != "USD" {
			t.Errorf("got %+v with one key and %+v with another; want the same balance", own, other)
		}
		if own.Key.SpendLimit != nil || own.Key.Remaining != nil || own.Key.Spent != cost {
			t.Errorf("the key without a limit: got %+v; want %s spent and no limit", own.Key, cost)
		}
		if other.Key.SpendLimit == nil || *other.Key.SpendLimit != "5.00" || *other.Key.Remaining != "5.00" || other.Key.Spent != "0.00" {
			t.Errorf("the key with a limit: got %+v; want 5.00 left", other.Key)
		}
	}
}

func TestAvailableBalanceExcludesReservations(t *testing.T) {
	a := newAPI(t)
	h := rig.NewBlockingProvider(t, a.Rig)
	const running = 3
	for range running {
		go func() {
			_, _ = a.Try(t.Context(), rig.Request{Path: chat.path, Key: a.account.Key, Body: chatBody(h.Model, "Hold on", false)})
		}()
	}
	h.Await(t, running)
	b := a.balance(t, 1, a.account.Key)
	h.Release()
	var total, reservation money.Nano
	for _, u := range a.account.AwaitUsage(t, running) {
		n, err := money.Parse(u.Reservation)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	for text, to := range map[string]*money.Nano{b.Reserved: &reservation} {
		var err error
		if *to, err = money.Parse(text); err != nil {
			t.Fatal(err)
		}
	}
	if reservation != total || b.Balance != "100.00" || b.Available != (100*money.Unit-total).String() {
		t.Errorf("while three run: got %+v; want %v reserved of 100 and the rest available", b, total)
	}
}

func TestBalanceNeedsAKey(t *testing.T) {
	a := newAPI(t)
	a.refused(t, rig.Request{Path: "/v1/balance"}, refusal{401, "invalid_api_key", ""})
}

func TestModelIsRequired(t *testing.T) {
	a := newAPI(t)
	for _, e := range generations {
		body := e.body("")
		delete(body, "model")
		a.refusedPost(t, e.path, body, refusal{400, "invalid_request", "model"})
	}
}

func TestNumberOfImagesIsClamped(t *testing.T) {
	a := newAPI(t)
	for sent, want := range map[any]int{-3: 1, 0: 1, 1: 1, 10: 10, 11: 10, 1000: 10, nil: 1} {
		model := a.Model(t, rig.Model{Type: "image"})
		answer := a.ok(t, images.path, images.with(model, "n", sent))
		var list struct{ Data []any }
		answer.Decode(t, &list)
		if len(list.Data) != want {
			t.Errorf("n = %v: got %d pictures; want %d", sent, len(list.Data), want)
		}
		if upstream := a.upstream(t, model); len(upstream) != 1 || upstream[0].body["n"] != float64(want) && (sent != nil || upstream[0].body["n"] != nil) {
			t.Errorf("n = %v: the provider got %v", sent, upstream)
		}
		if usage := a.AwaitUsage(t, answer.RequestID()); usage.Receipt.Lines[0].Quantity != int64(want) {
			t.Errorf("n = %v: %d pictures are billed; want %d", sent, usage.Receipt.Lines[0].Quantity, want)
		}
	}
}

func TestEvery429HasRetryAfter(t *testing.T) {
	a := newAPI(t)
	for directives, want := range map[string]string{
		"status=429":                    "1",
		"status=429,retry_after=7":      "7",
		"status=429,retry_after=3600":   "60",
		"body=rate_limit":               "2", // its text asks for 1.5 s
		"status=529,message=Overloaded": "1",
	} {
		model := a.Model(t, rig.Model{Directives: directives})
		e := texts[0] // the route is in cooldown after it
		answer := a.post(t, e.path, e.body(model))
		checkRefusal(t, e.path, answer, refusal{429, "rate_limit_exceeded", ""})
		if got := answer.Header.Get("Retry-After"); got != want {
			t.Errorf("%s, %s: Retry-After is %s; want %s", directives, e.path, got, want)
		}
	}
}

func TestVideoCreationAnswers202WithAnID(t *testing.T) {
	a := newAPI(t)
	answer := a.post(t, videos.path, videos.body(videos.model))
	var job video
	answer.Decode(t, &job)
	if answer.Status != http.StatusAccepted || job.Object != "video" || job.Status != "queued" && job.Status != "in_progress" {
		t.Errorf("got %s; want 202 with a video that is queued or in progress", answer)
	}
	if job.Model != videos.model {
		t.Errorf("the job names the model %q; want %q", job.Model, videos.model)
	}
	if polled := a.awaitVideo(t, job.ID, "completed"); polled.ID != job.ID || polled.Model != videos.model || polled.Seconds != "4" {
		t.Errorf("got %+v; want the same job, completed", polled)
	}
}

func TestVideoContentIsAvailableAfterCompletion(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Type: "video", Directives: "content=100000"})
	id := a.createVideo(t, videos.body(model))
	a.awaitVideo(t, id, "completed")
	path := "/v1/videos/" + id + "/content"
	whole := a.get(t, path)
	if whole.Status != http.StatusOK || whole.Header.Get("Content-Type") != "video/mp4" || len(whole.Body) != 100_000 {
		t.Fatalf("got %d %s, %d bytes; want the video", whole.Status, whole.Header.Get("Content-Type"), len(whole.Body))
	}
	checkHeaders(t, whole)
	part := a.Do(t, rig.Request{Path: path, Key: a.account.Key, Header: http.Header{"Range": {"bytes=100-199"}}})
	if part.Status != http.StatusPartialContent || string(part.Body) != string(whole.Body[100:200]) || part.Header.Get("Content-Range") != "bytes 100-199/100000" {
		t.Errorf("a range: got %d %s with %d bytes", part.Status, part.Header.Get("Content-Range"), len(part.Body))
	}
	checkHeaders(t, part)
	if thumbnail := a.get(t, path+"?variant=thumbnail"); thumbnail.Status != http.StatusOK || thumbnail.Header.Get("Content-Type") != "image/webp" {
		t.Errorf("the thumbnail: got %d %s", thumbnail.Status, thumbnail.Header.Get("Content-Type"))
	}
	if head := a.Do(t, rig.Request{Method: http.MethodHead, Path: path, Key: a.account.Key}); head.Status != http.StatusOK || len(head.Body) != 0 {
		t.Errorf("HEAD: got %s", head)
	}
}

func TestVideoNotReadyOrUnknownIsNotFound(t *testing.T) {
	a := newAPI(t)
	model := a.Model(t, rig.Model{Type: "video", Directives: "polls=100000"})
	id := a.createVideo(t, videos.body(model))
	other := a.Account(t, rig.AccountSpec{})
	for _, at := range []struct{ path, key string }{
		{"/v1/videos/" + id + "/content", a.account.Key},
		{"/v1/videos/video_00000000000000000000000000000000", a.account.Key},
		{"/v1/videos/video_00000000000000000000000000000000/content", a.account.Key},
		{"/v1/videos/" + url.PathEscape("../models"), a.account.Key},
		{"/v1/videos/" + id, other.Key},
		{"/v1/videos/" + strings.ToUpper(id), a.account.Key},
		{"/v1/videos/" + id[:len(id)-1], a.account.Key},
		{"/v1/videos/" + strings.Replace(id, "video_", "", 1) + "/content", other.Key},
	} {
		a.refused(t, rig.Request{Path: at.path, Key: at.key}, refusal{404, "not_found", ""})
	}
}

func TestVideoIsBilledPerSecondOnCompletion(t *testing.T) {
	a := newAPI(t)
	prices := map[string]any{"seconds": []any{map[string]any{"size": "1280x720", "price": "0.20"}, map[string]any{"price": "0.10"}}}
	models := a.Models(t, rig.Model{Type: "video", Price: prices, Directives: "seconds=6"}, rig.Model{Type: "video", Price: prices, Directives: "fail"})
	done, failed := models[0], models[1]
	body := videos.with(done, "size", "1280x720")
	first := a.createVideo(t, body)
	lost := a.createVideo(t, videos.body(failed))
	a.awaitVideo(t, first, "completed")
	a.awaitVideo(t, lost, "failed")
	for _, u := range a.account.AwaitUsage(t, 2) {
		if done := *u.VideoJob == first; done && u.Cost != "1.20" || !done && (u.Rule != "none" || u.Cost != "0.00") {
			t.Errorf("got %s for %s; want 1.20 for %s alone: the provider's 6 seconds at 0.20", u.Cost, *u.VideoJob, first)
		}
	}
	for range 3 { // polling on bills nothing more
		a.awaitVideo(t, first, "completed")
	}
	a.account.AwaitUsage(t, 2)
	a.CheckLedger(t)
}

func TestKeyIsRefusedWhenItsLimitIsReached(t *testing.T) {
	a := newAPI(t)
	body := chat.body("demo-all")
	reservation := reservationOf(t, a.Rig, body)
	_, key := a.account.NewKey(t, reservation.String())
	answer := a.Do(t, rig.Request{Path: chat.path, Key: key, Body: body})
	if answer.Status != http.StatusOK {
		t.Fatalf("within the limit: got %s", answer)
	}
	a.AwaitUsage(t, answer.RequestID())
	a.account.AwaitIdle(t)
	a.refused(t, rig.Request{Path: chat.path, Key: key, Body: body}, refusal{403, "spend_limit_exceeded", ""})
	a.ok(t, chat.path, body) // another key
}

func TestKeyIsRevokedFromActiveAndFromLimitReached(t *testing.T) {
	a := newAPI(t)
	body := chat.body("demo-all")
	active, activeKey := a.account.NewKey(t, "")
	spent, spentKey := a.account.NewKey(t, "0.000000001")
	a.refused(t, rig.Request{Path: chat.path, Key: spentKey, Body: body}, refusal{403, "spend_limit_exceeded", ""})
	for id, key := range map[string]string{active: activeKey, spent: spentKey} {
		a.account.Revoke(t, id)
		a.refused(t, rig.Request{Path: chat.path, Key: key, Body: body}, refusal{401, "invalid_api_key", ""})
	}
}

func TestRevokedKeyIsNotRestored(t *testing.T) {
	a := newAPI(t)
	id, key := a.account.NewKey(t, "0.000000001")
	a.account.Revoke(t, id)
	a.account.Revoke(t, id) // repeating it changes nothing
	a.refused(t, rig.Request{Path: "/v1/balance", Key: key}, refusal{401, "invalid_api_key", ""})
	_, fresh := a.account.NewKey(t, "")
	if answer := a.Do(t, rig.Request{Path: "/v1/balance", Key: fresh}); answer.Status != http.StatusOK {
		t.Errorf("a new key: got %s; want an answer", answer)
	}
}
