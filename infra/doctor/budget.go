package doctor

import (
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// billingRoles lists the roles with which a user may make budgets of a billing account.
var billingRoles = []string{"roles/billing.admin", "roles/billing.costsManager"}

// googleBilling checks that the budget's billing account pays for the project, and that the user
// may make budgets of it.
func (e *examination) googleBilling(s *settings.Settings, user string) {
	account := s.Budget.BillingAccount
	text, err := e.Run("gcloud", "billing", "projects", "describe", s.GKE.Project, "--format=value(billingAccountName)")
	switch pays := strings.TrimPrefix(strings.TrimSpace(text), "billingAccounts/"); {
	case err != nil:
		e.say(Unknown, "billing account", "gcloud services enable cloudbilling.googleapis.com --project="+s.GKE.Project,
			"that of the project: %v", err)
	case pays == "":
		e.say(Missing, "billing account", "gcloud billing projects link "+s.GKE.Project+" --billing-account="+account,
			"none pays for %s", s.GKE.Project)
	case pays != account:
		e.say(Missing, "billing account", "pulumi config set --path budget.billingAccount "+pays,
			"%s pays for %s, and the budget of %s would count nothing of it", pays, s.GKE.Project, account)
	default:
		e.say(OK, "billing account", "", "%s", account)
	}
	text, err = e.Run("gcloud", "billing", "accounts", "get-iam-policy", account, "--flatten=bindings[].members",
		"--filter=bindings.members:"+user, "--format=value(bindings.role)")
	has := strings.Fields(text)
	switch {
	case err != nil:
		e.say(Unknown, "budget", "ask an administrator of the billing account to run this", "rights of %s: %v", account,
			err)
	case !slices.ContainsFunc(billingRoles, func(role string) bool { return slices.Contains(has, role) }):
		e.say(Note, "budget", "gcloud billing accounts add-iam-policy-binding "+account+" --member=user:"+user+
			" --role=roles/billing.costsManager", "not given to %s itself, perhaps by a group or organization: %s",
			user, strings.Join(billingRoles, " or "))
	default:
		e.say(OK, "budget", "", "%s may make it", user)
	}
}

// amazonTag checks that the costs of the stack's tag are counted.
func (e *examination) amazonTag(ask func(...string) (string, error)) {
	text, err := ask("ce", "list-cost-allocation-tags", "--tag-keys", settings.LabelStack, "--status", "Active",
		"--query", "CostAllocationTags[].TagKey", "--output", "text")
	switch {
	case err != nil:
		e.say(Unknown, "budget", "ask the owner of the account that pays the bill",
			"whether the tag %s is activated: %v", settings.LabelStack, err)
	case !slices.Contains(strings.Fields(text), settings.LabelStack):
		e.say(Note, "budget", "aws ce update-cost-allocation-tags-status --cost-allocation-tags-status TagKey="+
			settings.LabelStack+",Status=Active",
			"it counts nothing until the tag %s is activated, which is possible a day after the first `pulumi up`",
			settings.LabelStack)
	default:
		e.say(OK, "budget", "", "the tag %s is activated", settings.LabelStack)
	}
}
