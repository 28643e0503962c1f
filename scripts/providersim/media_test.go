package providersim

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestImages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		change   map[string]string
		pictures int
		usage    bool
	}{
		{"one", nil, 1, true},
		{"three", map[string]string{"n": "3"}, 3, true},
		{"fewer than requested", map[string]string{"n": "3", "model": `"sim@images=2"`}, 2, true},
		{"none", model("noimage"), 0, true},
		{"without usage", model("nousage"), 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			_, body := b.ask(t, Images, tt.change)
			a := decode[imageAnswer](t, body)
			seen := map[string]bool{}
			for _, d := range a.Data {
				seen[d.B64JSON] = true
				raw, err := base64.StdEncoding.DecodeString(d.B64JSON)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := png.Decode(bytes.NewReader(raw)); err != nil {
					t.Errorf("image does not decode: %v", err)
				}
			}
			if len(a.Data) != tt.pictures || len(seen) != tt.pictures || (a.Usage != nil) != tt.usage {
				t.Errorf("%d images, %d different, usage %v; want %d, usage %t", len(a.Data), len(seen), a.Usage, tt.pictures, tt.usage)
			}
		})
	}
}

func TestImageURL(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	_, body := b.ask(t, Images, map[string]string{"response_format": `"url"`, "n": "2"})
	a := decode[imageAnswer](t, body)
	if len(a.Data) != 2 || a.Usage != nil || a.Data[0].RevisedPrompt != "a boat" {
		t.Fatalf("answer %s", body)
	}
	resp, err := http.Get(a.Data[1].URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := png.Decode(resp.Body); err != nil {
		t.Errorf("decode %s: %v", a.Data[1].URL, err)
	}
	if got := *b.last(t).Counts; got != (Counts{Images: 2}) {
		t.Errorf("counts %+v; want two images and nothing else", got)
	}
}

func TestImageStream(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	frames := b.stream(t, Images, map[string]string{"stream": "true", "n": "2", "partial_images": "1"})
	var kinds []string
	var total int64
	for _, f := range frames {
		e := decode[imageEvent](t, f.data)
		if e.Type != f.name || e.B64JSON == "" {
			t.Errorf("event %q has data %s", f.name, f.data)
		}
		kinds = append(kinds, strings.TrimPrefix(f.name, "image_generation."))
		if e.Usage != nil {
			total += e.Usage.TotalTokens
		}
	}
	if diff := cmp.Diff([]string{"partial_image", "completed", "partial_image", "completed"}, kinds); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if total != 2+2*ImageOutputTokens {
		t.Errorf("usage of the events adds up to %d; want %d", total, 2+2*ImageOutputTokens)
	}
}

func (b fixture) create(t *testing.T, list string) Video {
	t.Helper()
	status, body := b.ask(t, Videos, map[string]string{"model": `"sim@` + list + `"`, "seconds": `"8"`, "size": `"1280x720"`})
	if status != http.StatusOK {
		t.Fatalf("create answered %d %s", status, body)
	}
	return decode[Video](t, body)
}

func (b fixture) poll(t *testing.T, id string) Video {
	t.Helper()
	status, body := b.call(t, http.MethodGet, "/v1/videos/"+id, "")
	if status != http.StatusOK {
		t.Fatalf("poll answered %d %s", status, body)
	}
	return decode[Video](t, body)
}

func TestVideoLifecycle(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, list string
		want       []string // of the create answer, then of each poll
	}{
		{"default", "", []string{"queued", "in_progress", "completed", "completed"}},
		{"at once", "polls=0", []string{"queued", "completed"}},
		{"three polls", "polls=3", []string{"queued", "in_progress", "in_progress", "in_progress", "completed"}},
		{"failure", "polls=0,fail", []string{"queued", "failed", "failed"}},
		{"other words", "foreign_status", []string{"preprocessing", "processing", "succeeded"}},
		{"foreign status of a failure", "foreign_status,polls=0,fail", []string{"preprocessing", "cancelled"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{})
			v := b.create(t, tt.list)
			got := []string{v.Status}
			for range tt.want[1:] {
				v = b.poll(t, v.ID)
				got = append(got, v.Status)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("statuses (-want +got):\n%s", diff)
			}
			ended := v.CompletedAt != nil
			if failed := v.Error != nil; !ended || failed != strings.Contains(tt.list, "fail") {
				t.Errorf("last answer %+v", v)
			}
		})
	}
}

func TestVideoSecondsAreReportedWhenDone(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	v := b.create(t, "seconds=5")
	if e := b.last(t); e.Counts != nil || v.Seconds != "5" || v.Size != "1280x720" {
		t.Errorf("created %+v, counts %v", v, e.Counts)
	}
	b.poll(t, v.ID)
	b.poll(t, v.ID)
	if e := b.last(t); e.Counts == nil || e.Counts.Seconds != 5 || e.AnswerID != v.ID || e.Model != "sim@seconds=5" {
		t.Errorf("journal of the last poll %+v", e)
	}
}

func TestVideoTakesTime(t *testing.T) {
	t.Parallel()
	clock := time.Unix(1_800_000_000, 0)
	b := setup(t, Config{Now: func() time.Time { return clock }})
	v := b.create(t, "polls=0,takes=1m")
	if got := b.poll(t, v.ID).Status; got != "in_progress" {
		t.Errorf("before its time: %s", got)
	}
	clock = clock.Add(time.Minute)
	got := b.poll(t, v.ID)
	if got.Status != "completed" || *got.CompletedAt != clock.Unix() || *got.ExpiresAt != clock.Add(time.Hour).Unix() {
		t.Errorf("at its time: %+v", got)
	}
}

func TestVideoContent(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	v := b.create(t, "polls=0,content=1000")
	if status, body := b.call(t, http.MethodGet, "/v1/videos/"+v.ID+"/content", ""); status != http.StatusNotFound {
		t.Errorf("content before the end answered %d %s", status, body)
	}
	b.poll(t, v.ID)
	_, whole := b.call(t, http.MethodGet, "/v1/videos/"+v.ID+"/content", "")
	if len(whole) != 1000 || whole[4:8] != "ftyp" {
		t.Fatalf("content has %d bytes, starts %q", len(whole), whole[:8])
	}
	tests := []struct {
		name, span, variant string
		status              int
		contentType, want   string
	}{
		{"first bytes", "bytes=0-9", "video", 206, "video/mp4", whole[:10]},
		{"middle", "bytes=300-301", "", 206, "video/mp4", whole[300:302]},
		{"tail", "bytes=-5", "", 206, "video/mp4", whole[995:]},
		{"all", "", "video", 200, "video/mp4", whole},
		{"outside", "bytes=1000-", "", 416, "text/plain; charset=utf-8", "invalid range: failed to overlap\n"},
		{"thumbnail", "bytes=8-11", "thumbnail", 206, "image/webp", "WEBP"},
		{"spritesheet", "bytes=0-3", "spritesheet", 206, "image/webp", "RIFF"},
	}
	for _, tt := range tests {
		r := b.request(t, http.MethodGet, "/v1/videos/"+v.ID+"/content?variant="+tt.variant, "")
		if tt.span != "" {
			r.Header.Set("Range", tt.span)
		}
		resp := do(t, r)
		body := readAll(t, resp)
		if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.contentType || body != tt.want {
			t.Errorf("%s: %d %s, %d bytes", tt.name, resp.StatusCode, resp.Header.Get("Content-Type"), len(body))
		}
		if e := b.last(t); !e.Finished || e.Status != tt.status || e.BytesSent != int64(len(body)) {
			t.Errorf("%s: journal %+v", tt.name, e)
		}
	}
	if status, _ := b.call(t, http.MethodGet, "/v1/videos/"+v.ID+"/content?variant=smell", ""); status != http.StatusBadRequest {
		t.Errorf("unknown variant answered %d", status)
	}
}

func TestVideoContentCut(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	v := b.create(t, "polls=0")
	b.poll(t, v.ID)
	if _, err := b.sim.AddRule(Rule{Match: Match{Path: "/v1/videos/*"}, Directives: "cut=40000"}); err != nil {
		t.Fatal(err)
	}
	resp := do(t, b.request(t, http.MethodGet, "/v1/videos/"+v.ID+"/content", ""))
	body, err := io.ReadAll(resp.Body)
	if err == nil || len(body) != 40000 {
		t.Errorf("read %d bytes, %v; want 40000 and an error", len(body), err)
	}
}

func TestExpiredVideoHasNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	v := b.create(t, "polls=0,expired")
	if got := b.poll(t, v.ID); *got.ExpiresAt != got.CreatedAt {
		t.Errorf("expires %d, created %d", *got.ExpiresAt, got.CreatedAt)
	}
	status, body := b.call(t, http.MethodGet, "/v1/videos/"+v.ID+"/content", "")
	if got := errorOf(t, Videos, body); status != http.StatusNotFound || got != "invalid_request_error/expired/" {
		t.Errorf("answered %d %s", status, got)
	}
}

func TestVideoForm(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	tests := []struct {
		name   string
		fields [][2]string
		file   bool
		want   int
	}{
		{"plain", [][2]string{{"model", "sim"}, {"prompt", "a boat"}, {"seconds", "12"}}, false, 200},
		{"file", [][2]string{{"model", "sim"}, {"prompt", "a boat"}}, true, 200},
		{"address", [][2]string{{"model", "sim"}, {"prompt", "a boat"}, {"input_reference[image_url]", "data:,x"}}, false, 200},
		{"unknown field", [][2]string{{"model", "sim"}, {"prompt", "a boat"}, {"extra", "x"}}, false, 400},
		{"no prompt", [][2]string{{"model", "sim"}}, false, 400},
		{"twice", [][2]string{{"model", "sim"}, {"model", "sim"}, {"prompt", "a"}}, false, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var form bytes.Buffer
			w := multipart.NewWriter(&form)
			for _, f := range tt.fields {
				if err := w.WriteField(f[0], f[1]); err != nil {
					t.Fatal(err)
				}
			}
			if tt.file {
				part, err := w.CreateFormFile("input_reference", "a.png")
				if err != nil {
					t.Fatal(err)
				}
				_, _ = part.Write([]byte{0xff, 0x00})
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			r := b.request(t, http.MethodPost, "/v1/videos", form.String())
			r.Header.Set("Content-Type", w.FormDataContentType())
			resp := do(t, r)
			if body := readAll(t, resp); resp.StatusCode != tt.want {
				t.Errorf("answered %d %s; want %d", resp.StatusCode, body, tt.want)
			}
			if got := b.last(t).BodyBase64; got != tt.file {
				t.Errorf("body in base64: %t; want %t", got, tt.file)
			}
		})
	}
	if got := b.sim.Videos()[0].Seconds; got != "12" {
		t.Errorf("seconds of the form %q; want 12", got)
	}
}

func TestVideoIdempotencyAndList(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	create := func(key string) string {
		r := b.request(t, http.MethodPost, "/v1/videos", bodyOf(Videos, nil))
		r.Header.Set("Idempotency-Key", key)
		return decode[Video](t, readAll(t, do(t, r))).ID
	}
	first, second := create("k1"), create("k2")
	if again := create("k1"); again != first || first == second {
		t.Errorf("jobs %s, %s, and for the first key again %s", first, second, again)
	}
	list := func(query string) (ids []string, more bool) {
		_, body := b.call(t, http.MethodGet, "/v1/videos"+query, "")
		l := decode[videoList](t, body)
		for _, v := range l.Data {
			ids = append(ids, v.ID)
		}
		return ids, l.HasMore
	}
	for query, want := range map[string][]string{
		"": {second, first}, "?order=asc": {first, second}, "?limit=1": {second}, "?after=" + second: {first}, "?after=" + first: nil,
	} {
		got, more := list(query)
		if diff := cmp.Diff(want, got); diff != "" || more != (query == "?limit=1") {
			t.Errorf("list%s, more %t (-want +got):\n%s", query, more, diff)
		}
	}
}

func TestLostCreateCreatesTheJob(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	resp, err := http.DefaultClient.Do(b.request(t, http.MethodPost, "/v1/videos", bodyOf(Videos, model("lostcreate"))))
	if err == nil {
		resp.Body.Close()
		t.Fatalf("answered %d; want no answer", resp.StatusCode)
	}
	jobs := b.sim.Videos()
	if e := b.last(t); len(jobs) != 1 || e.AnswerID != jobs[0].ID || e.Status != 0 || e.Outcome != OutcomeCut {
		t.Errorf("jobs %v, journal %+v", jobs, e)
	}
}

func TestVideoDelete(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	v := b.create(t, "")
	for _, want := range []int{http.StatusOK, http.StatusNotFound} {
		if status, body := b.call(t, http.MethodDelete, "/v1/videos/"+v.ID, ""); status != want {
			t.Errorf("answered %d %s; want %d", status, body, want)
		}
	}
}
