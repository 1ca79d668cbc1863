package settings

import (
	"fmt"
	"regexp"
)

var (
	isGoogleKey = regexp.MustCompile(`^projects/[^/]+/locations/([^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+$`)
	isAmazonKey = regexp.MustCompile(`^arn:aws[-a-z]*:kms:([-a-z0-9]+):[0-9]{12}:key/[-0-9a-z]+$`)
)

// checkAmazonKey checks the ARN of a key of KMS, if one is given. Why says what is in the region.
func checkAmazonKey(at, arn, region, why string, p *Problems) {
	key := isAmazonKey.FindStringSubmatch(arn)
	p.Check(arn == "" || key != nil, at, "%s: expected the ARN of a key, as %s", arn,
		fmt.Sprintf("arn:aws:kms:%s:123456789012:key/ID", region))
	p.Check(key == nil || key[1] == region, at, "%s: expected a key in %s, %s", arn, region, why)
}

// checkGoogleKey checks the name of a key of Cloud KMS, if one is given. Why says what is in the
// location.
func checkGoogleKey(at, name, location, why string, p *Problems) {
	key := isGoogleKey.FindStringSubmatch(name)
	p.Check(name == "" || key != nil, at, "%s: expected a key, as "+
		"projects/PROJECT/locations/us-central1/keyRings/RING/cryptoKeys/KEY", name)
	p.Check(key == nil || key[1] == location, at, "%s: expected a key in %s, %s", name, location, why)
}

// checkKey checks the key of the stack, and that all that the stack makes can be encrypted by it.
func (g *GKE) checkKey(s *Settings, p *Problems) {
	if g.KMSKey == "" {
		return
	}
	// Google's provider does not tell a preview that storage has no key
	s.note("gke.kmsKey: the registry and Filestore get it when they are made: those that exist keep what they " +
		"have; a pool of nodes is replaced for it")
	of, _ := Region(g.Location)
	checkGoogleKey("gke.kmsKey", g.KMSKey, of, "where the cluster is", p)
	if f := g.Filestore; f != nil && f.Name == "" {
		p.Check(f.Tier != "BASIC_HDD" && f.Tier != "BASIC_SSD", "gke.filestore.tier", "%s: Google encrypts this tier "+
			"by its own keys only: expected ZONAL or REGIONAL, or no gke.kmsKey", f.Tier)
	}
}
