package eks

import (
	"strconv"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// maxBudgetName is the greatest length of the name of a budget.
const maxBudgetName = 100

// needsTag names the step without which the filter of a budget counts nothing.
const needsTag = "budget: it counts nothing until the tag " + settings.LabelStack + " is activated in the account " +
	"that pays the bill, a day after the stack is up: aws ce update-cost-allocation-tags-status " +
	"--cost-allocation-tags-status TagKey=" + settings.LabelStack + ",Status=Active"

// addBudget makes the budget of the settings, of what has the stack's own tag. Budgets are of the
// account and of no region.
func (p *parts) addBudget() error {
	b := p.s.Budget
	if b == nil {
		return nil
	}
	activate, err := infra.WarnBeforeCreate(p.ctx, p.Hook("cost allocation tag"), []string{needsTag})
	if err != nil {
		return err
	}
	var notifications pulumi.Array
	for _, alert := range b.Alerts() {
		kind := "ACTUAL"
		if alert.Forecast {
			kind = "FORECASTED"
		}
		notifications = append(notifications, pulumi.Map{
			"notificationType":         pulumi.String(kind),
			"comparisonOperator":       pulumi.String("GREATER_THAN"),
			"threshold":                pulumi.Float64(alert.Percent),
			"thresholdType":            pulumi.String("PERCENTAGE"),
			"subscriberEmailAddresses": pulumi.ToStringArray(b.Mail),
		})
	}
	name := p.s.Name(maxBudgetName)
	_, err = p.register("aws:budgets/budget:Budget", "budget", pulumi.Map{
		"name":        pulumi.String(name),
		"budgetType":  pulumi.String("COST"),
		"timeUnit":    pulumi.String("MONTHLY"),
		"limitAmount": pulumi.String(strconv.Itoa(b.Monthly)),
		"limitUnit":   pulumi.String("USD"),
		"costFilters": pulumi.Array{pulumi.Map{
			"name": pulumi.String("TagKeyValue"),
			"values": pulumi.ToStringArray([]string{
				"user:" + settings.LabelStack + "$" + p.s.Label()}),
		}},
		"notifications": notifications,
		"tags":          p.tags(name),
	}, activate)
	return err
}
