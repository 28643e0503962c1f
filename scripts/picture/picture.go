// Package picture makes pictures of pages small, and compares them.
package picture

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
)

// Colours is the greatest number of colours of a reduced picture: as many as one byte counts.
const Colours = 256

// Reduce returns the PNG file of a picture with its most frequent colours; each other pixel gets the nearest of them. Pages
// have few colours besides the edges of letters, so nobody sees the difference to all colours if there are 256.
func Reduce(from image.Image, colours int) ([]byte, error) {
	bounds := from.Bounds()
	counts := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(from, x, y)]++
		}
	}

	// The order must not depend on that of the map: the same picture gives the same file.
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(number(a), number(b)))
	})

	var palette color.Palette
	for _, c := range frequent[:min(len(frequent), colours, Colours)] {
		palette = append(palette, c)
	}

	places := map[color.RGBA]uint8{}
	for c := range counts {
		places[c] = uint8(palette.Index(c))
	}

	to := image.NewPaletted(image.Rect(0, 0, bounds.Dx(), bounds.Dy()), palette)
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			to.Pix[y*to.Stride+x] = places[at(from, bounds.Min.X+x, bounds.Min.Y+y)]
		}
	}

	var file bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, to); err != nil {
		return nil, fmt.Errorf("encode a picture: %w", err)
	}

	return file.Bytes(), nil
}

// at returns the colour of a pixel. Pages have no transparent ones.
func at(from image.Image, x, y int) color.RGBA {
	r, g, b, _ := from.At(x, y).RGBA()
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 0xff}
}

func number(c color.RGBA) int { return int(c.R)<<16 | int(c.G)<<8 | int(c.B) }

// alike is how far a channel of two pixels may differ, of 255, if they count as equal: the reduction changes that much.
const alike = 32

// Difference returns the share of the pixels that differ, between 0 and 1. It is 1 for pictures of different sizes.
func Difference(a, b image.Image) float64 {
	if a.Bounds().Size() != b.Bounds().Size() || a.Bounds().Empty() {
		return 1
	}
	differing, size := 0, a.Bounds().Size()
	for y := range size.Y {
		for x := range size.X {
			p, q := at(a, a.Bounds().Min.X+x, a.Bounds().Min.Y+y), at(b, b.Bounds().Min.X+x, b.Bounds().Min.Y+y)
			if apart(p.R, q.R) > alike || apart(p.G, q.G) > alike || apart(p.B, q.B) > alike {
				differing++
			}
		}
	}
	return float64(differing) / float64(size.X*size.Y)
}

func apart(a, b uint8) int { return max(int(a), int(b)) - min(int(a), int(b)) }
