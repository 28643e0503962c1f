package providersim

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"iter"
	"net/http"
	"strconv"
	"strings"
)

// The objects of the images format.
type (
	imageAnswer struct {
		Created      int64        `json:"created"`
		Background   string       `json:"background,omitempty"`
		OutputFormat string       `json:"output_format,omitempty"`
		Quality      string       `json:"quality,omitempty"`
		Size         string       `json:"size,omitempty"`
		Data         []imageDatum `json:"data"`
		Usage        *imageUsage  `json:"usage,omitempty"`
	}
	imageDatum struct {
		B64JSON       string `json:"b64_json,omitempty"`
		URL           string `json:"url,omitempty"`
		RevisedPrompt string `json:"revised_prompt,omitempty"`
	}
	imageUsage struct {
		InputTokens  int64 `json:"input_tokens"`
		InputDetails struct {
			TextTokens  int64 `json:"text_tokens"`
			ImageTokens int64 `json:"image_tokens"`
		} `json:"input_tokens_details"`
		OutputTokens  int64              `json:"output_tokens"`
		OutputDetails *imageUsageDetails `json:"output_tokens_details,omitempty"` // not in streams
		TotalTokens   int64              `json:"total_tokens"`
	}
	imageUsageDetails struct {
		ImageTokens int64 `json:"image_tokens"`
		TextTokens  int64 `json:"text_tokens"`
	}
	imageEvent struct {
		Type         string      `json:"type"`
		B64JSON      string      `json:"b64_json"`
		CreatedAt    int64       `json:"created_at"`
		Size         string      `json:"size"`
		Quality      string      `json:"quality"`
		Background   string      `json:"background"`
		OutputFormat string      `json:"output_format"`
		PartialIndex *int64      `json:"partial_image_index,omitempty"`
		Usage        *imageUsage `json:"usage,omitempty"`
	}
)

// imagePlan is the content of an answer.
type imagePlan struct {
	prompt  int64 // tokens
	images  int64
	url     bool // URLs instead of image data, and no usage
	noUsage bool
}

func planImages(m members, d *directives) imagePlan {
	p := imagePlan{
		prompt:  TokensOf(m.contentBytes(Images)),
		images:  m.number("n", 1),
		url:     m.text("response_format", "") == "url",
		noUsage: d.noUsage,
	}
	if d.images != unset {
		p.images = min(p.images, d.images)
	}
	if d.noImage || d.refuse {
		p.images = 0
	}
	return p
}

func (p imagePlan) counts() Counts {
	c := Counts{Images: p.images}
	if !p.url && !p.noUsage {
		c.Input, c.Output, c.ImageOut = p.prompt, p.images*ImageOutputTokens, p.images*ImageOutputTokens
	}
	return c
}

// usage returns the usage object for a part of the images.
func (p imagePlan) usage(prompt, images int64) *imageUsage {
	out := images * ImageOutputTokens
	u := &imageUsage{InputTokens: prompt, OutputTokens: out, TotalTokens: prompt + out}
	u.InputDetails.TextTokens = prompt
	return u
}

func (x *exchange) images() error {
	p := planImages(x.members, x.d)
	if x.streaming() {
		return x.play(&imageScript{x: x, plan: p, created: x.sim.cfg.Now().Unix()})
	}

	a := imageAnswer{Created: x.sim.cfg.Now().Unix(), Data: []imageDatum{}}
	for i := range p.images {
		if p.url {
			a.Data = append(a.Data, imageDatum{URL: x.imageURL(i), RevisedPrompt: x.members.text("prompt", "")})
		} else {
			a.Data = append(a.Data, imageDatum{B64JSON: base64.StdEncoding.EncodeToString(imagePNG(i))})
		}
	}

	if !p.url {
		a.Background, a.OutputFormat = chosen(x.members, "background", "opaque"), chosen(x.members, "output_format", "png")
		a.Quality, a.Size = chosen(x.members, "quality", "low"), chosen(x.members, "size", "1024x1024")
		if !p.noUsage {
			a.Usage = p.usage(p.prompt, p.images)
			a.Usage.OutputDetails = &imageUsageDetails{ImageTokens: a.Usage.OutputTokens}
		}
	}

	if err := x.json(http.StatusOK, mustJSON(a)); err != nil {
		return err
	}

	var usage any
	if a.Usage != nil {
		usage = a.Usage
	}

	x.report(usage, p.counts())
	return nil
}

// chosen returns a value of the request, or the default for "auto".
func chosen(m members, name, otherwise string) string {
	if v := m.text(name, "auto"); v != "auto" {
		return v
	}
	return otherwise
}

func (x *exchange) imageURL(i int64) string {
	return fmt.Sprintf("http://%s/_sim/images/%d.png", x.r.Host, i)
}

// serveImage serves the images of imageURL.
func (s *Sim) serveImage(w http.ResponseWriter, name string) {
	i, err := strconv.ParseInt(strings.TrimSuffix(name, ".png"), 10, 16)
	if err != nil || i < 0 {
		controlError(w, http.StatusNotFound, "no such image")
		return
	}
	w.Header().Set("Content-Type", "image/png")
	_, _ = w.Write(imagePNG(i))
}

// imagePNG returns a PNG of one pixel. Different images have different colours.
func imagePNG(i int64) []byte {
	img := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	img.SetNRGBA(0, 0, color.NRGBA{
		R: uint8(i * 20),
		G: 80,
		B: 160,
		A: 255,
	})
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(fmt.Sprintf("providersim: encode image: %v", err)) // writing to a buffer does not fail
	}
	return b.Bytes()
}

// imageScript is the stream of the images format.
type imageScript struct {
	x       *exchange
	plan    imagePlan
	created int64
}

func (s *imageScript) events() iter.Seq[event] {
	return func(yield func(event) bool) {
		partials := s.x.members.number("partial_images", 0)
		for i := range s.plan.images {
			for k := range partials {
				e := s.event("image_generation.partial_image", i)
				e.PartialIndex = &k
				if !yield(event{name: e.Type, data: mustJSON(e)}) {
					return
				}
			}
			if !yield(s.completed(i)) {
				return
			}
		}
	}
}

// completed returns the event of one complete image. The first one includes the prompt
// tokens, so that the sum of the events is the usage of the request.
func (s *imageScript) completed(i int64) event {
	e := s.event("image_generation.completed", i)
	done := imagePlan{images: i + 1, prompt: s.plan.prompt, noUsage: s.plan.noUsage}
	sent := event{name: e.Type, last: i == s.plan.images-1, counts: done.counts()}
	if !s.plan.noUsage {
		prompt := s.plan.prompt
		if i > 0 {
			prompt = 0
		}
		e.Usage = s.plan.usage(prompt, 1)
		sent.usage = e.Usage
	}
	sent.data = mustJSON(e)
	return sent
}

func (s *imageScript) event(kind string, i int64) imageEvent {
	m := s.x.members
	return imageEvent{
		Type:         kind,
		B64JSON:      base64.StdEncoding.EncodeToString(imagePNG(i)),
		CreatedAt:    s.created,
		Size:         chosen(m, "size", "1024x1024"),
		Quality:      chosen(m, "quality", "low"),
		Background:   chosen(m, "background", "opaque"),
		OutputFormat: chosen(m, "output_format", "png"),
	}
}

func (s *imageScript) keepalive() event { return event{} }

func (s *imageScript) failure(f *fault) []event {
	detail := f.detail()
	return []event{{name: "error", data: mustJSON(struct {
		Type  string      `json:"type"`
		Error errorDetail `json:"error"`
	}{"error", detail})}}
}
