// Command generate writes the tables of package trainer/elastic/price from the price lists of two
// projects that keep them current: for AWS zz_generated.pricing_aws.go of
// aws/karpenter-provider-aws, for Google initial-prices.json of
// cloudpilot-ai/karpenter-provider-gcp.
//
//	go run ./infra/price/generate -aws FILE -aws_source "v1.15.1" -gcp FILE -gcp_source "commit …"
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"regexp"
	"slices"
)

// Regions of the tables.
const (
	awsRegion = "us-east-1"
	gcpRegion = "us-central1"
)

func main() {
	log.SetFlags(0)
	aws := flag.String("aws", "", "zz_generated.pricing_aws.go")
	awsSource := flag.String("aws_source", "", "version of karpenter-provider-aws, for the table's first lines")
	gcp := flag.String("gcp", "", "initial-prices.json")
	gcpSource := flag.String("gcp_source", "",
		"commit of karpenter-provider-gcp and its date, for the table's first lines")
	out := flag.String("out", "trainer/elastic/price", "directory of the tables")
	flag.Parse()
	for _, table := range []struct {
		from, to string
		of       func([]byte, string) ([]byte, error)
		source   string
	}{{*aws, "aws.txt", amazon, *awsSource}, {*gcp, "gcp.txt", google, *gcpSource}} {
		if table.from == "" {
			continue
		}
		text, err := os.ReadFile(table.from)
		if err == nil {
			text, err = table.of(text, table.source)
		}
		if err == nil {
			err = os.WriteFile(*out+"/"+table.to, text, 0o644)
		}
		if err != nil {
			log.Fatalf("%s: %v", table.to, err)
		}
	}
}

var (
	priced    = regexp.MustCompile(`"([a-z][a-z0-9-]*\.[a-z0-9-]+)": ([0-9.]+)`)
	generated = regexp.MustCompile(`generated at (\d{4}-\d\d-\d\d)\S* for ` + awsRegion)
)

// amazon returns the table of a Go file with a map of prices by type.
func amazon(text []byte, source string) ([]byte, error) {
	day := generated.FindSubmatch(text)
	if day == nil {
		return nil, fmt.Errorf("it does not say when it was generated for %s", awsRegion)
	}
	prices := map[string]string{}
	for _, found := range priced.FindAllSubmatch(text, -1) {
		prices[string(found[1])] = string(found[2])
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# US dollars per hour of Amazon's instance types in %s, on demand, Linux. Source:\n"+
		"# pkg/providers/pricing/zz_generated.pricing_aws.go of aws/karpenter-provider-aws %s,\n"+
		"# generated %s. Written by infra/price/generate.\n", awsRegion, source, day[1])
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		fmt.Fprintf(&b, "%s %s\n", name, prices[name])
	}
	return b.Bytes(), nil
}

// google returns the table of a JSON file with prices by region, kind and type.
func google(text []byte, source string) ([]byte, error) {
	var all struct {
		Prices map[string]struct {
			OnDemand map[string]float64 `json:"on_demand"`
			Spot     map[string]float64 `json:"spot"`
		} `json:"prices"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	in, ok := all.Prices[gcpRegion]
	if !ok {
		return nil, fmt.Errorf("it has no prices of %s", gcpRegion)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# US dollars per hour of Google's machine types in %s, on demand and spot, with the\n"+
		"# GPUs of families that include them. Source: pkg/providers/pricing/initial-prices.json of\n"+
		"# cloudpilot-ai/karpenter-provider-gcp, %s. Written by infra/price/generate.\n", gcpRegion, source)
	for _, name := range slices.Sorted(maps.Keys(in.OnDemand)) {
		fmt.Fprintf(&b, "%s %.4f %.4f\n", name, in.OnDemand[name], in.Spot[name])
	}
	return b.Bytes(), nil
}
