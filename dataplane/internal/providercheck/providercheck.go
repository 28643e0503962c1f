// Package providercheck calls a provider once in each format and says what comes, so that a wrong address, a refused
// secret or an unknown model shows itself before a customer's request does.
//
// A call of a text format asks for one token. Pictures and videos cost much, so the prompt is left out of their calls:
// a provider that refuses that has the address, and accepts the secret.
//
// Of an answer, only what an error of the format says is shown, without what could be a secret: whoever may write the catalog
// chooses the address, which may be one of the operator's network, and must not read there.
package providercheck

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"modelgateway/dataplane/internal/catalog"
	"modelgateway/dataplane/internal/provider"
	"modelgateway/dataplane/internal/route"
	"modelgateway/shared/catalogkv"
	"modelgateway/shared/wire/checkwire"
)

// Providers performs calls.
type Providers interface {
	Do(ctx context.Context, call *provider.Call) (*provider.Answer, error)
}

const (
	// timeout bounds all calls of a check together.
	timeout = 20 * time.Second
	// maxCalls bounds the calls of a check. More than one of a format are made only for routes with an address of their own.
	maxCalls = 20
	// maxText bounds how much of an answer is read, in bytes.
	maxText = 4 << 10
)

// Run checks a provider. It records nothing.
func Run(ctx context.Context, providers Providers, snapshot *catalog.Snapshot, id string) []checkwire.Call {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	calls := plan(snapshot, id)
	results := make([]checkwire.Call, len(calls))
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() { results[i] = check(ctx, providers, &calls[i]) })
	}
	all.Wait()
	return results
}

// plan returns the calls that check a provider: in each format of its routes one, and one for each route with an address
// of its own.
func plan(snapshot *catalog.Snapshot, id string) (calls []provider.Call) {
	type place struct {
		format catalogkv.Format
		route  string
	}
	planned := map[place]bool{}
	for _, f := range catalogkv.Formats {
		for _, r := range snapshot.RoutesTo(id, f) {
			at := place{format: f}
			if _, own := r.Addresses[f]; own {
				at.route = r.ID
			}
			if planned[at] || len(calls) == maxCalls {
				continue
			}
			planned[at] = true
			target := r.Target(f, false)
			calls = append(calls, provider.Call{
				Choice:      route.Choice{Route: r, Credential: r.Provider.Credentials[0]},
				Format:      f,
				Path:        target.Path,
				Query:       target.Query,
				ContentType: "application/json",
			})
		}
	}
	return calls
}

// body returns the cheapest body of a format.
func body(f catalogkv.Format, model string) []byte {
	members := map[string]any{"model": model}
	switch f {
	case catalogkv.Chat, catalogkv.Messages:
		members["messages"], members["max_tokens"] = []map[string]string{{"role": "user", "content": "Hi"}}, 1
	case catalogkv.Responses:
		members["input"], members["max_output_tokens"] = "Hi", 16 // fewer are refused
	case catalogkv.Images, catalogkv.Videos:
	}
	text, err := json.Marshal(members)
	if err != nil { // texts and numbers always marshal
		panic(err)
	}
	return text
}

func check(ctx context.Context, providers Providers, call *provider.Call) checkwire.Call {
	call.Body = provider.NewBody(body(call.Format, call.UpstreamModel), nil)
	defer call.Body.Release()
	result := checkwire.Call{
		Format:        string(call.Format),
		Route:         call.ID,
		UpstreamModel: call.UpstreamModel,
		Credential:    call.Credential.ID,
		URL:           call.Provider.URL(catalogkv.Target{Path: call.Path, Query: call.Query}),
	}
	started := time.Now()
	answer, err := providers.Do(ctx, call)
	var text []byte
	var contentType string
	if err == nil {
		result.Status, contentType = answer.Status, answer.Header.Get("Content-Type")
		text, err = io.ReadAll(io.LimitReader(answer.Body, maxText))
		_ = answer.Body.Close() // the rest is not wanted
	}
	result.MS = time.Since(started).Milliseconds()
	if err != nil {
		result.Result, result.Detail = checkwire.NoAnswer, reason(call, err)
		return result
	}

	result.Result = meaning(call.Format, result.Status, text)
	if result.Result != checkwire.Works {
		result.Detail = detail(contentType, text, &call.Credential)
	}
	if result.Result == checkwire.NotFound || result.Result == checkwire.OtherFormat {
		result.Hint = hint(result.URL)
	}
	return result
}

// meaning returns what an answer means.
func meaning(f catalogkv.Format, status int, text []byte) checkwire.Result {
	isObject := strings.HasPrefix(strings.TrimLeft(string(text), " \t\r\n"), "{")
	switch {
	case status < http.StatusMultipleChoices && isObject:
		return checkwire.Works
	case status < http.StatusBadRequest:
		return checkwire.OtherFormat
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		if f.Type() != catalogkv.Text && isObject {
			return checkwire.Works
		}
		return checkwire.RefusedRequest
	case status == http.StatusUnauthorized || status == http.StatusPaymentRequired || status == http.StatusForbidden:
		return checkwire.RefusedSecret
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusGone:
		return checkwire.NotFound
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == 529:
		return checkwire.Busy
	case status < http.StatusInternalServerError:
		return checkwire.RefusedRequest
	default:
		return checkwire.Failed
	}
}

// twoVersions finds an address whose base already has the version that the usual path begins with.
var twoVersions = regexp.MustCompile(`/v[0-9]+[a-z0-9]*(/openai)?/v1/`)

// hint says what to change if the address can never work.
func hint(address string) string {
	if !twoVersions.MatchString(address) {
		return ""
	}
	return "base_url ends with a version, and the usual path begins with another one: name the path of the format in addresses"
}
