package eks

import (
	"fmt"
	"strings"
)

// budgetLaws has the laws of the budget.
var budgetLaws = []law{
	{"E27 the budget counts what has the stack's tag, and no more", func(v *view) (wrong []string) {
		all := v.of("aws:budgets/budget:Budget")
		if v.s.Budget == nil {
			return count(all, 0)
		}
		if wrong = count(all, 1); len(wrong) > 0 {
			return wrong
		}
		for path, want := range map[string]string{"budgetType": "COST", "timeUnit": "MONTHLY", "limitAmount": "500",
			"limitUnit": "USD", "costFilters[0].name": "TagKeyValue", "costFilters[1].name": "<none>",
			"costFilters[0].values[0]": "user:elasticdl-stack$elasticdl-test", "costFilters[0].values[1]": "<none>"} {
			wrong = append(wrong, is(all[0], path, want)...)
		}
		if all[0].Options.Protect {
			wrong = append(wrong, "it is protected, and deleting it does no harm")
		}
		return wrong
	}, func(v *view) {
		set(v.named("aws:budgets/budget:Budget", "budget")[0], "costFilters[0].values[0]", "user:team$ml")
	}},
	{"E28 each address gets mail at each threshold, and when the greatest is expected", func(v *view) (wrong []string) {
		if v.s.Budget == nil {
			return nil
		}
		b := v.named("aws:budgets/budget:Budget", "budget")[0]
		kinds := strings.Repeat("ACTUAL ", len(v.s.Budget.Thresholds)) + "FORECASTED"
		percents := append(v.s.Budget.Thresholds, v.s.Budget.Thresholds[len(v.s.Budget.Thresholds)-1])
		for i, kind := range strings.Fields(kinds) {
			at := fmt.Sprintf("notifications[%d].", i)
			wrong = append(wrong, is(b, at+"notificationType", kind)...)
			wrong = append(wrong, is(b, at+"threshold", fmt.Sprint(percents[i]))...)
			wrong = append(wrong, is(b, at+"thresholdType", "PERCENTAGE")...)
			wrong = append(wrong, is(b, at+"comparisonOperator", "GREATER_THAN")...)
			for n, mail := range v.s.Budget.Mail {
				wrong = append(wrong, is(b, fmt.Sprintf("%ssubscriberEmailAddresses[%d]", at, n), mail)...)
			}
		}
		return append(wrong, is(b, fmt.Sprintf("notifications[%d].threshold", len(percents)), "<none>")...)
	}, func(v *view) {
		set(v.named("aws:budgets/budget:Budget", "budget")[0], "notifications[3].notificationType", "ACTUAL")
	}},
}
