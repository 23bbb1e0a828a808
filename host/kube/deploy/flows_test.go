package deploy

import (
	"slices"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// The Leases of what the chart installs are renewed before what others ask the API server for, and the scheduler does not wait in one line with namespaces' accounts.
func TestFlows(t *testing.T) {
	accounts, levels := map[string]bool{}, map[string][]string{}
	for _, one := range render(t, "") {
		switch one.Kind {
		case "ServiceAccount":
			accounts[one.Name] = true
		case "FlowSchema":
			flow := decoded(t, one).(*flowcontrolv1.FlowSchema)
			for _, rule := range flow.Spec.Rules {
				for _, subject := range rule.Subjects {
					if subject.ServiceAccount == nil || subject.ServiceAccount.Namespace != "aliquot" {
						t.Fatalf("%s is for %+v", one.Name, subject)
					}
					level := flow.Spec.PriorityLevelConfiguration.Name
					levels[level] = append(levels[level], subject.ServiceAccount.Name)
				}
			}
		}
	}
	for level, want := range map[string][]string{"leader-election": {"aliquot-scheduler", "aliquot-controller"}, "workload-high": {"aliquot-scheduler"}} {
		if !slices.Equal(levels[level], want) {
			t.Errorf("of the level %s are %v, want %v", level, levels[level], want)
		}
		for _, name := range want {
			if !accounts[name] {
				t.Errorf("%s is of the level %s and no account of the chart", name, level)
			}
		}
	}
}
