package consoletest

import (
	"bytes"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"modelgateway/controlplane/internal/httpapi/servertest"
)

// Browser is a browser that does not follow redirects.
type Browser struct {
	World  *World
	Client *http.Client
}

// Browser returns a browser without a session.
func (w *World) Browser() *Browser {
	w.T.Helper()
	jar, err := cookiejar.New(nil)
	servertest.Check(w.T, err)
	return &Browser{w, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// SignedIn returns a browser with a session of a token.
func (w *World) SignedIn(token string) *Browser {
	w.T.Helper()
	b := w.Browser()
	if got, text := b.Post("/console/sign-in", "token", token); got.StatusCode != http.StatusSeeOther {
		w.T.Fatalf("sign in: got %d %s", got.StatusCode, text)
	}
	return b
}

// Get opens a page.
func (b *Browser) Get(path string) (*http.Response, string) {
	b.World.T.Helper()
	return b.Send(http.MethodGet, path, nil, nil)
}

// Post sends a form of names and values.
func (b *Browser) Post(path string, form ...string) (*http.Response, string) {
	b.World.T.Helper()
	values := url.Values{}
	for pair := range slices.Chunk(form, 2) {
		values.Set(pair[0], pair[1])
	}
	return b.Send(http.MethodPost, path, values, nil)
}

// Send sends a request with a form, if any, and headers.
func (b *Browser) Send(method, path string, form url.Values, header http.Header) (*http.Response, string) {
	b.World.T.Helper()
	sent := http.Header{}
	if form != nil {
		sent.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	maps.Copy(sent, header)
	return b.SendBody(method, path, strings.NewReader(form.Encode()), sent)
}

// SendBody sends a request with any body.
func (b *Browser) SendBody(method, path string, body io.Reader, header http.Header) (*http.Response, string) {
	b.World.T.Helper()
	r, err := http.NewRequestWithContext(b.World.T.Context(), method, b.World.URL+path, body)
	servertest.Check(b.World.T, err)
	maps.Copy(r.Header, header)
	answer, err := b.Client.Do(r)
	servertest.Check(b.World.T, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	servertest.Check(b.World.T, err)
	return answer, string(text)
}

// Fill opens a form and sends it with values, and with those that the form has hidden.
func (b *Browser) Fill(path string, values ...string) (*http.Response, string) {
	b.World.T.Helper()
	_, page := b.Get(path)
	form := url.Values{"idempotency_key": {Hidden(b.World.T, page, "idempotency_key")}, "step": {"do"}}
	if strings.Contains(page, `name="if_match"`) {
		form.Set("if_match", Hidden(b.World.T, page, "if_match"))
	}
	for pair := range slices.Chunk(values, 2) {
		form.Add(pair[0], pair[1])
	}
	return b.Send(http.MethodPost, path, form, nil)
}

// Done sends a form with values and checks that it leads to a page with a text.
func (b *Browser) Done(path, at, text string, values ...string) {
	b.World.T.Helper()
	answer, page := b.Fill(path, values...)
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != at {
		b.World.T.Fatalf("%s: got %d to %q; want %s: %s", path, answer.StatusCode, answer.Header.Get("Location"), at, page)
	}
	if _, page := b.Get(at); !strings.Contains(page, text) || !strings.Contains(page, "Applied by the one proxy, proxy-1.") {
		b.World.T.Errorf("%s does not have %q, or not the proxy that has applied it: %s", at, text, page)
	}
}

// Refused sends a form with values and checks that it is shown again with a status and a text.
func (b *Browser) Refused(path string, status int, text string, values ...string) {
	b.World.T.Helper()
	answer, page := b.Fill(path, values...)
	if answer.StatusCode != status || !strings.Contains(page, text) {
		b.World.T.Errorf("%s with %q: got %d; want %d with %q: %s", path, values, answer.StatusCode, status, text, page)
	}
}

// UploadTo sends a form with a file.
func (b *Browser) UploadTo(path, field, file string, values ...string) (*http.Response, string) {
	b.World.T.Helper()
	_, page := b.Get(path)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile(field, "../../<b>prices</b>.json")
	servertest.Check(b.World.T, err)
	_, err = part.Write([]byte(file))
	servertest.Check(b.World.T, err)
	values = append([]string{"idempotency_key", Hidden(b.World.T, page, "idempotency_key"), "step", "do"}, values...)
	for pair := range slices.Chunk(values, 2) {
		servertest.Check(b.World.T, form.WriteField(pair[0], pair[1]))
	}
	servertest.Check(b.World.T, form.Close())
	return b.SendBody(http.MethodPost, path, &body, http.Header{"Content-Type": {form.FormDataContentType()}})
}

// inAmounts are the tags between the digits of an amount.
var inAmounts = regexp.MustCompile(`<span class="(?:places|dim)[^>]*>`)

var inTags = regexp.MustCompile(`<[^>]*>|\s+`)

var hiddenField = regexp.MustCompile(`name="(if_match|idempotency_key)" value="([^"]*)"`)

// Hidden returns the value of a hidden input of a page.
func Hidden(t testing.TB, page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no hidden %s: %s", name, page)
	}
	return strings.NewReplacer("&#34;", `"`, "&amp;", "&").Replace(found[1])
}

// HiddenFields returns the hidden fields of the form of a page.
func HiddenFields(page string) (fields []string) {
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		fields = append(fields, m[1], strings.ReplaceAll(m[2], "&#34;", `"`))
	}
	return fields
}

// Texts returns the texts of the elements of a page that match a pattern, without tags.
func Texts(page, pattern string) []string {
	found := regexp.MustCompile(pattern).FindAllString(page, -1)
	for i := range found {
		found[i] = strings.Join(strings.Fields(inTags.ReplaceAllString(inAmounts.ReplaceAllString(found[i], ""), " ")), " ")
	}
	return found
}
