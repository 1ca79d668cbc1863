// Package laws tests that a place keeps checkpoints as [checkpoint.Files] and
// trainer/store/checkpoint promise. It is for the tests of each kind of place:
//
//	laws.Test(t, laws.Place{Open: func(t *testing.T) checkpoint.Files {
//		return checkpoint.Local(t.TempDir())
//	}})
package laws

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// Place is a kind of place.
type Place struct {
	// Open returns a place in which there is nothing, another one each time.
	Open func(t *testing.T) checkpoint.Files
	// Weak states that the place has no exclusive creation: it replaces the file that is there.
	Weak bool
	// Stride is the distance between two damaged bytes. 0 and 1: every byte is, in turn.
	Stride int
}

// Test tests all laws, each as a test of its own.
func Test(t *testing.T, p Place) {
	for _, law := range []struct {
		name string
		test func(t *testing.T, p Place)
	}{
		{"FileAppearsWhole", fileAppearsWhole},
		{"CreatedOnce", createdOnce},
		{"OneOwner", oneOwner},
		{"ClaimsAtOnce", claimsAtOnce},
		{"DeathOfTheClaimant", deathOfTheClaimant},
		{"OwnersApart", ownersApart},
		{"Strangers", strangers},
		{"Names", names},
		{"Ranges", ranges},
		{"AnyNumberOfHolders", anyNumberOfHolders},
		{"Damage", damage},
		{"DeathOfTheWriter", deathOfTheWriter},
		{"Retain", retain},
		{"NothingThere", nothingThere},
		{"Export", export},
		{"ExportOfDamage", exportOfDamage},
	} {
		t.Run(law.name, func(t *testing.T) { law.test(t, p) })
	}
}
