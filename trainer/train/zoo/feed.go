package zoo

import (
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/train/data/example"
	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// pictures reads images of a shape [height width channels] from tf.train.Examples: feature "image"
// is a byte string of the pixels or, as ElasticDL wrote it, a list of floats from 0 to 255; feature
// "label" is the class. A pixel becomes pixel*scale + shift.
type pictures struct {
	shape        [3]int
	classes      int64
	scale, shift float32
}

// feed is a Model's Feed.
func (p pictures) feed(mode Mode, records [][]byte, b *Batch) error {
	size := p.shape[0] * p.shape[1] * p.shape[2]
	images := b.Reset(len(records), p.shape[:]...)
	var features example.Features
	for i, record := range records {
		var err error
		if features, err = example.Parse(features[:0], record); err != nil {
			return fmt.Errorf("record %d: %w; the model wants tf.train.Example records, as "+
				"elasticdl dataset writes them", i, err)
		}
		if err := p.pixels(images[i*size:(i+1)*size], features); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if mode == Prediction {
			continue
		}
		label, err := features.Int("label")
		if err == nil && (label < 0 || label >= p.classes) {
			err = fmt.Errorf("feature %q: is %d, want 0 to %d", "label", label, p.classes-1)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		b.Labels[i] = int32(label)
	}
	if mode == Prediction {
		b.Labels = b.Labels[:0]
	}
	return nil
}

func (p pictures) pixels(dst []float32, features example.Features) error {
	if features.Kind("image") == example.Floats {
		err := features.Floats("image", dst)
		for i, v := range dst {
			dst[i] = float32(v*p.scale) + p.shift
		}
		return err
	}
	pixels, err := features.Bytes("image")
	if err != nil {
		return err
	}
	if len(pixels) != len(dst) {
		return fmt.Errorf("feature %q: has %d bytes, want %d", "image", len(pixels), len(dst))
	}
	kernel.BytesToFloat(dst, pixels, p.scale, p.shift)
	return nil
}

// digitPictures reads the images of MNIST, in grey; pixels become 0 to 1.
var digitPictures = pictures{shape: [3]int{28, 28, 1}, classes: 10, scale: 1. / 255}
