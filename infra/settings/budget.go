package settings

import (
	"cmp"
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strings"
)

// Budget is a limit of the stack's monthly bill: the cloud sends mail when the costs reach parts of
// it. It stops nothing.
type Budget struct {
	// US dollars on EKS, the currency of the billing account on GKE
	Monthly int `json:"monthly"`
	// addresses that get the mail
	Mail []string `json:"mail"`
	// percentages of Monthly at which mail is sent, ascending; default 50, 90, 100
	Thresholds []int `json:"thresholds,omitempty"`
	// of Google: "012345-567890-ABCDEF"; required on GKE, refused on EKS
	BillingAccount string `json:"billingAccount,omitempty"`
}

// Alert is a cause of a mail.
type Alert struct {
	// percentage of Budget.Monthly
	Percent int
	// the costs are expected to reach it by the end of the month; otherwise they have reached it
	Forecast bool
}

// Alerts returns the causes of mail: each threshold, and the forecast that the greatest is reached.
func (b *Budget) Alerts() (all []Alert) {
	for _, percent := range b.Thresholds {
		all = append(all, Alert{Percent: percent})
	}
	return append(all, Alert{Percent: slices.Max(b.Thresholds), Forecast: true})
}

// Label returns the value of LabelStack on what the stack creates: the budget counts what has it.
func (s *Settings) Label() string { return cmp.Or(s.Labels[LabelStack], s.Name(maxLabel)) }

// maxLabel is the greatest length of the value of a label.
const maxLabel = 63

const (
	// the greatest numbers of addresses of a budget: channels on Google, subscribers on Amazon
	maxGoogleMail, maxAmazonMail = 5, 10
	// Amazon sends mail for five causes, one of which is the forecast
	maxThresholds = 4
	maxBudget     = 1_000_000_000
	maxPercent    = 1000
)

var isBillingAccount = regexp.MustCompile(`^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$`)

func (b *Budget) check(s *Settings, p *Problems) {
	const at = "budget."
	most := maxGoogleMail
	switch s.Cloud {
	case CloudGKE:
		p.Check(isBillingAccount.MatchString(b.BillingAccount), at+"billingAccount",
			"%s: expected the ID of the project's billing account, as 012345-567890-ABCDEF: gcloud billing "+
				"projects describe PROJECT --format='value(billingAccountName.basename())'",
			orMissing(b.BillingAccount))
	case CloudEKS:
		most = maxAmazonMail
		p.Check(b.BillingAccount == "", at+"billingAccount",
			"%s: is for cloud: gke, and Amazon's budget is of the account: remove it", b.BillingAccount)
	default:
		p.Check(slices.Contains([]string{CloudGKE, CloudEKS}, s.Cloud), "budget",
			"is for what a cloud bills, and a stack on %s makes nothing of that: remove it", s.Cloud)
		return
	}
	p.within(at+"monthly", b.Monthly, 1, maxBudget)
	p.Check(len(b.Mail) > 0, at+"mail", "missing: who gets the mail? expected one or more addresses, as "+
		"[ops@example.com]")
	p.Check(len(b.Mail) <= most, at+"mail", "%d addresses: expected at most %d: give that of a group",
		len(b.Mail), most)
	for i, address := range b.Mail {
		path := fmt.Sprintf(at+"mail[%d]", i)
		parsed, err := mail.ParseAddress(address)
		p.Check(err == nil && parsed.Address == address && !strings.Contains(address, "::"), path,
			"%s: expected an address, as ops@example.com", orMissing(address))
		p.Check(!slices.Contains(b.Mail[:i], address), path, "%s occurs twice", address)
	}
	p.Check(len(b.Thresholds) > 0, at+"thresholds", "missing: expected one or more percentages, as [50, 90, 100]")
	p.Check(len(b.Thresholds) <= maxThresholds, at+"thresholds", "%d percentages: expected at most %d",
		len(b.Thresholds), maxThresholds)
	for i, percent := range b.Thresholds {
		path := fmt.Sprintf(at+"thresholds[%d]", i)
		p.within(path, percent, 1, maxPercent)
		p.Check(i == 0 || percent > b.Thresholds[i-1], path, "%d: expected ascending percentages", percent)
	}
}
