package browser

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"

	"modelgateway/scripts/e2e/rig"
	"modelgateway/scripts/picture"
)

var update = flag.Bool("update", false, "write the pictures of the parts of the console")

// The pictures of the page of all parts, and what drew them. A browser that draws otherwise cannot be compared pixel by pixel:
//   - the version of Chromium and the fonts as at the pictures: at most 0.1 % of the pixels differ;
//   - another version with the same widths of text: at most 3 %, because lines end and letters begin where they did;
//   - other fonts: only the size of the page, within 10 %.
const (
	maxDiffering, maxOfOtherVersion, maxOtherSize = 0.001, 0.03, 0.1
)

// drawnBy is what the pictures depend on besides the console.
type drawnBy struct {
	Chromium string `json:"chromium"`
	// Fonts are the widths of a text in the fonts of the console, in thousandths of a pixel.
	Fonts [2]int64 `json:"fonts"`
}

const fonts = `(() => {
	const c = document.createElement("canvas").getContext("2d"), text = "Example Ltd, 1 204.1177 USD, acc_0192f0…a2b3";
	return [getComputedStyle(document.body).fontFamily, getComputedStyle(document.querySelector("code")).fontFamily]
		.map((family) => { c.font = "14px " + family; return Math.round(c.measureText(text).width * 1000); });
})()`

// settle removes what depends on the state of the system and on the time.
const settle = `(() => {
	document.getElementById("banners").replaceChildren();
	document.querySelectorAll("main time").forEach((e) => { e.removeAttribute("datetime"); e.textContent = "12 s ago"; });
	return document.fonts.ready.then(() => true);
})()`

func TestPartsLookAsTheyDid(t *testing.T) {
	rig.Long(t)
	b := open(t)
	b.signIn(filled(t).AdminToken())
	b.visit("/console/parts")
	now := drawnBy{Fonts: eval[[2]int64](b, fonts)}
	b.run(chromedp.ActionFunc(func(ctx chromedpContext) (err error) {
		_, now.Chromium, _, _, _, err = browser.GetVersion().Do(ctx)
		return err
	}))
	var then drawnBy
	file := filepath.Join("testdata", "parts.json")
	if *update {
		text, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &then); err != nil {
		t.Fatal(err)
	}
	most := maxDiffering
	switch {
	case now.Fonts != then.Fonts:
		most = 1
		t.Logf("other fonts than those of the pictures: %+v, not %+v; only the size is compared", now, then)
	case now.Chromium != then.Chromium:
		most = maxOfOtherVersion
		t.Logf("another Chromium than that of the pictures: %s, not %s", now.Chromium, then.Chromium)
	}
	for _, width := range []int64{1280, 390} {
		for _, colours := range []string{"light", "dark"} {
			b.run(chromedp.EmulateViewport(width, 900), scheme(colours))
			b.visit("/console/parts")
			eval[bool](b, settle)
			var shot []byte
			b.run(chromedp.Screenshot("main", &shot, chromedp.ByQuery))
			compare(t, fmt.Sprintf("parts-%d-%s.png", width, colours), shot, most)
		}
	}
}

// colours is how many colours the kept pictures have.
const colours = 64

// compare compares a picture with the one in testdata. Both have few colours.
func compare(t *testing.T, name string, shot []byte, most float64) {
	t.Helper()
	path := filepath.Join("testdata", name)
	whole, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	small, err := picture.Reduce(whole, colours)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, small, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := decode(t, small)
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, file)
	if most == 1 {
		heights := float64(got.Bounds().Dy()) / float64(want.Bounds().Dy())
		if got.Bounds().Dx() != want.Bounds().Dx() || math.Abs(heights-1) > maxOtherSize {
			t.Errorf("%s: the page has the size %v; want %v", name, got.Bounds().Size(), want.Bounds().Size())
		}
		return
	}
	if difference := picture.Difference(got, want); difference > most {
		kept := filepath.Join(os.TempDir(), name)
		if err := os.WriteFile(kept, shot, 0o600); err != nil {
			t.Error(err)
		}
		t.Errorf("%s: %.2f %% of the pixels differ; want at most %.1f %%. The page is now %s; make screenshots/parts takes it over",
			name, 100*difference, 100*most, kept)
	}
}

func decode(t *testing.T, file []byte) image.Image {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
