package picture_test

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
	"testing"

	"modelgateway/scripts/picture"
)

// page returns a picture of few colours with some edges between them.
func page(seed uint64) *image.RGBA {
	random := rand.New(rand.NewPCG(seed, 0))
	m := image.NewRGBA(image.Rect(0, 0, 300, 200))
	for y := range 200 {
		for x := range 300 {
			c := color.RGBA{0xf6, 0xf7, 0xf9, 0xff}
			switch {
			case y%20 < 8 && x%7 < 3:
				c = color.RGBA{0x16, 0x1b, 0x26, 0xff}
			case y%20 < 8 && x%7 == 3:
				grey := uint8(random.UintN(256))
				c = color.RGBA{grey, grey, grey, 0xff}
			}
			m.Set(x, y, c)
		}
	}
	return m
}

func TestReducedPictureLooksAlikeAndIsSmall(t *testing.T) {
	t.Parallel()
	from := page(1)
	file, err := picture.Reduce(from, picture.Colours)
	if err != nil {
		t.Fatal(err)
	}
	again, err := picture.Reduce(from, picture.Colours)
	if err != nil || !bytes.Equal(file, again) {
		t.Errorf("the same picture gives another file: %v", err)
	}
	reduced, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if difference := picture.Difference(from, reduced); difference > 0 {
		t.Errorf("%.4f of the pixels differ", difference)
	}
	var whole bytes.Buffer
	if err := png.Encode(&whole, from); err != nil {
		t.Fatal(err)
	}
	if len(file)*3 > whole.Len()*2 {
		t.Errorf("the file has %d bytes, the one before %d", len(file), whole.Len())
	}
}

func TestDifferenceIsTheShareOfPixels(t *testing.T) {
	t.Parallel()
	a, b := page(1), page(1)
	for x := range 30 {
		b.Set(x, 19, color.RGBA{0xff, 0, 0, 0xff})
	}
	if difference := picture.Difference(a, b); difference != 30.0/(300*200) {
		t.Errorf("got %f", difference)
	}
	if difference := picture.Difference(a, a.SubImage(image.Rect(0, 0, 300, 199))); difference != 1 {
		t.Errorf("pictures of different sizes: got %f", difference)
	}
}
