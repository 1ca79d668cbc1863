package zoo

import (
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/data/example"
	"github.com/elasticdl/elasticdl/trainer/nn/kernel"
)

// feedMNIST reads images of 28×28 grey pixels from tf.train.Examples: feature "image" is a byte
// string of the pixels or, as ElasticDL wrote it, a list of floats from 0 to 255; feature "label" is the digit.
// Pixels become 0 to 1.
func feedMNIST(mode Mode, records [][]byte, b *Batch) error {
	const size, classes = 28 * 28, 10
	images := b.Reset(len(records), 28, 28, 1)
	var features example.Features
	for i, record := range records {
		var err error
		if features, err = example.Parse(features[:0], record); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		image := images[i*size : (i+1)*size]
		if features.Kind("image") == example.Floats {
			err = features.Floats("image", image)
			kernel.Scale(1./255, image)
		} else {
			err = feedPixels(image, features)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if mode == Prediction {
			continue
		}
		label, err := features.Int("label")
		if err == nil && (label < 0 || label >= classes) {
			err = fmt.Errorf("feature %q: is %d, want 0 to %d", "label", label, classes-1)
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

func feedPixels(dst []float32, features example.Features) error {
	pixels, err := features.Bytes("image")
	if err != nil {
		return err
	}
	if len(pixels) != len(dst) {
		return fmt.Errorf("feature %q: has %d bytes, want %d", "image", len(pixels), len(dst))
	}
	kernel.BytesToFloat(dst, pixels, 1./255, 0)
	return nil
}
