package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
)

// Synthetic are the parameters of images-synthetic.
type Synthetic struct {
	// number of classes; 0: 4
	Classes int `json:"classes"`
	// training images per class; 0: 50. Validation has a fifth of that, at least 1
	PerClass int `json:"per_class"`
	// width and height in pixels; 0: 64
	Size int `json:"size"`
	// of the random numbers; the same seed gives the same images
	Seed uint64 `json:"seed"`
}

// complete returns s with defaults for fields that are 0. Its error names every field that is out
// of range.
func (s Synthetic) complete() (Synthetic, error) {
	var problems []error
	for _, f := range []struct {
		flag           string
		value          *int
		zero, from, to int
	}{{"classes", &s.Classes, 4, 2, 1000}, {"per_class", &s.PerClass, 50, 1, 10_000}, {"size", &s.Size, 64, 8, 1024}} {
		if *f.value == 0 {
			*f.value = f.zero
		}
		if *f.value < f.from || *f.value > f.to {
			problems = append(problems, fmt.Errorf("--%s=%d: expected %d to %d", f.flag, *f.value, f.from, f.to))
		}
	}
	return s, errors.Join(problems...)
}

// fillSynthetic writes the images of both parts as CLASS/INDEX.jpeg.
func fillSynthetic(ctx context.Context, m *making) error {
	s := *m.Synthetic
	picture := image.NewRGBA(image.Rect(0, 0, s.Size, s.Size))
	var file bytes.Buffer
	for stream, part := range []struct {
		name     string
		perClass int
		count    *int64
	}{{m.Layout.Train, s.PerClass, &m.manifest.Train}, {m.Layout.Test, max(1, s.PerClass/5), &m.manifest.Test}} {
		*part.count = int64(s.Classes) * int64(part.perClass)
		to := m.folders(part.name, *part.count)
		for class := range s.Classes {
			for i := range part.perClass {
				s.draw(picture, class, rand.New(rand.NewPCG(s.Seed, uint64(stream)<<48|uint64(class)<<32|uint64(i))))
				file.Reset()
				if err := jpeg.Encode(&file, picture, &jpeg.Options{Quality: 90}); err != nil {
					return fmt.Errorf("write %s: %w", part.name, err)
				}
				if err := to.add(ctx, fmt.Sprintf("class-%03d/%05d.jpeg", class, i), file.Bytes()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// draw paints an image of a class: stripes with the hue and the direction of the class, at a random
// offset, with noise.
func (s Synthetic) draw(picture *image.RGBA, class int, r *rand.Rand) {
	const stripes, noise = 4, 24
	turn := float64(class) / float64(s.Classes)
	across, down := math.Sincos(turn * math.Pi)
	wave := 2 * math.Pi * stripes / float64(s.Size)
	phase, bright := r.Float64()*2*math.Pi, 0.8+0.2*r.Float64()
	hue := [3]float64{}
	for i := range hue {
		hue[i] = 0.5 + 0.5*math.Cos(2*math.Pi*(turn-float64(i)/3))
	}
	for y := range s.Size {
		for x := range s.Size {
			stripe := 0.75 + 0.25*math.Sin(wave*(across*float64(x)+down*float64(y))+phase)
			var p [3]uint8
			for i, h := range hue {
				p[i] = uint8(min(255, max(0, 255*h*stripe*bright+noise*r.NormFloat64())))
			}
			picture.SetRGBA(x, y, color.RGBA{p[0], p[1], p[2], 255})
		}
	}
}
