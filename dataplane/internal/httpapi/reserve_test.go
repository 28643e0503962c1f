package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"modelgateway/shared/catalogkv"
)

func TestRequestWhoseReservationOverflowsIsRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1 << 52, 1<<52 + 1, 1 << 62, 1<<63 - 1} {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.ReserveOutputTokens = 1 << 12 }}, jsonAnswer(http.StatusOK, chatJSON))
		got := g.post("/v1/chat/completions", `{"model":"text","messages":[],"n":`+strconv.FormatInt(n, 10)+`}`)
		if got.status != http.StatusBadRequest && got.status != http.StatusPaymentRequired && got.status != http.StatusForbidden {
			t.Errorf("n of %d: got %d %s", n, got.status, got.body)
		}
		if calls := len(g.sims[0].received()); calls != 0 {
			t.Errorf("n of %d: the provider got %d requests", n, calls)
		}
	}
}

func TestOutputLimitAboveTheModelsIsLoweredBeforeTheReservation(t *testing.T) {
	t.Parallel()
	reserved := map[string]int64{}
	for _, limit := range []string{"100", "100000", "9e99"} {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.MaxOutputTokens = 100 }}, jsonAnswer(http.StatusOK, chatJSON))
		if got := g.post("/v1/chat/completions", `{"model":"text","messages":[],"max_tokens":`+limit+`}`); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		if body := g.sims[0].received()[0].body; !strings.Contains(body, `"max_tokens":100}`) && !strings.Contains(body, `"max_tokens":100,`) {
			t.Errorf("a limit of %s is sent as %s", limit, body)
		}
		e := g.spool.all()[0]
		if e.MaxOutput != 100 {
			t.Errorf("a limit of %s: the event has the limit %d; want 100", limit, e.MaxOutput)
		}
		reserved[limit] = int64(e.Reservation)
	}
	if reserved["100"] == 0 || reserved["100000"] != reserved["100"] || reserved["9e99"] != reserved["100"] {
		t.Errorf("reserved %v; want the same for all", reserved)
	}
}

// A prompt must not count as an image because it begins like one: requests of a whole context window would run on a
// balance that covers none of them.
func TestReservationCoversTextThatLooksLikeMedia(t *testing.T) {
	t.Parallel()
	const head = "data:image/png;base64,"
	prompt := strings.Repeat("please_read_this ", 10_000)
	encoded := strings.Repeat("QUJD", 40_000)
	for path, places := range map[string][]string{
		"/v1/chat/completions": {
			`"messages":[{"role":"user","content":"%"}]`,
			`"messages":[{"role":"user","content":[{"type":"text","text":"%"}]}]`,
			`"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"%"}}]}]`,
			`"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{"image_url":{"url":"%"}}}}]`,
		},
		"/v1/responses": {
			`"input":"%"`,
			`"input":[],"instructions":"%"`,
			`"input":[{"type":"function_call_output","call_id":"c","output":"%"}]`,
			`"input":[],"text":{"format":{"type":"json_schema","name":"n","schema":{"image_url":"%"}}}`,
		},
		"/v1/messages": {
			`"max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"%"}}]}]`,
			`"max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"source":{"data":"%"}}}]}]`,
			`"max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"%"}]}]`,
		},
	} {
		for _, place := range places {
			for _, text := range []string{prompt, encoded} {
				g := newGatewayWith(t, options{}, jsonAnswer(http.StatusOK, chatJSON))
				g.post(path, `{"model":"text",`+strings.Replace(place, "%", head+text, 1)+`}`)
				events := g.spool.all()
				if len(events) == 0 {
					t.Errorf("%s: not admitted", place)
					continue
				}
				if got := int64(events[0].Reservation); got < 40_000 {
					t.Errorf("%s: reserved %d for 40000 tokens of text", place, got)
				}
			}
		}
	}
}

// The tokens of a document grow with its length: many requests with documents must not run on a balance that covers none.
func TestReservationCoversDocumentsByTheirLength(t *testing.T) {
	t.Parallel()
	reserved := func(window int64, media string) int64 {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.ContextWindow = window }}, jsonAnswer(http.StatusOK, chatJSON))
		g.post("/v1/chat/completions", `{"model":"text","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"`+media+`"}}]}]}`)
		return int64(g.spool.all()[0].Reservation)
	}
	pdf, png := "data:application/pdf;base64,", "data:image/png;base64,"
	image := reserved(0, png+strings.Repeat("QUJD", 20_000))
	document := reserved(0, pdf+strings.Repeat("QUJD", 20_000))
	twice := reserved(0, pdf+strings.Repeat("QUJD", 40_000))
	bounded := reserved(5000, pdf+strings.Repeat("QUJD", 40_000))
	if image >= document || document >= twice {
		t.Errorf("reserved %d for an image, %d for a document, %d for one of twice its length", image, document, twice)
	}
	if bounded >= document || bounded <= image {
		t.Errorf("reserved %d for a document beyond the context window; want less than %d", bounded, document)
	}
}

// How long a document is that a prompt names by its address, nobody knows before the provider has read it.
func TestReservationCoversDocumentsByAddress(t *testing.T) {
	t.Parallel()
	const image, document = `{"type":"image","source":{"type":"url","url":"https://example.org/a"}}`, `{"type":"document","source":{"type":"url","url":"https://example.org/a"}}`
	for _, tt := range []struct {
		path, part string
		window     int64
		least      int64
		most       int64
	}{
		{"/v1/messages", `"max_tokens":1,"messages":[{"role":"user","content":[` + image + `]}]`, 0, 1, 2_000},
		{"/v1/messages", `"max_tokens":1,"messages":[{"role":"user","content":[` + document + `]}]`, 0, 100_000, 103_000},
		{"/v1/messages", `"max_tokens":1,"messages":[{"role":"user","content":[` + document + "," + document + `]}]`, 0, 200_000, 204_000},
		{"/v1/messages", `"max_tokens":1,"messages":[{"role":"user","content":[` + document + `]}]`, 32_000, 32_000, 34_000},
		{"/v1/responses", `"max_output_tokens":1,"input":[{"role":"user","content":[{"type":"input_file","file_url":"https://example.org/a"}]}]`, 0, 100_000, 103_000},
		{"/v1/chat/completions", `"max_tokens":1,"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"https://example.org/a"}}]}]`, 0, 100_000, 103_000},
		{"/v1/chat/completions", `"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.org/a"}}]}]`, 0, 1, 2_000},
	} {
		g := newGatewayWith(t, options{model: func(m *catalogkv.Model) { m.ContextWindow = tt.window }}, jsonAnswer(http.StatusOK, chatJSON))
		g.post(tt.path, `{"model":"text",`+tt.part+`}`)
		events := g.spool.all()
		if len(events) == 0 {
			t.Errorf("%s: not admitted", tt.part)
			continue
		}
		if got := int64(events[0].Reservation); got < tt.least || got > tt.most {
			t.Errorf("%s: reserved %d; want %d to %d", tt.part, got, tt.least, tt.most)
		}
	}
}

func TestReservationAndChargeCoverTheFramesOfAnimations(t *testing.T) {
	t.Parallel()
	g := newGateway(t, jsonAnswer(http.StatusOK, `{"created":1,"data":[{"b64_json":"eA=="}]}`))
	if got := g.post("/v1/images/generations", `{"model":"image","prompt":"x","output_format":"gif","frame_count":16}`); got.status != http.StatusOK {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if e := g.spool.all()[0]; e.Usage.Images != 16 || e.Cost != 1600 || int64(e.Reservation) != 1600 {
		t.Errorf("reserved %d, charged %d for %d images; want 16 of 100 each", e.Reservation, e.Cost, e.Usage.Images)
	}
}
