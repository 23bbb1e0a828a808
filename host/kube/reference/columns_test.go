package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"github.com/aliquot-dev/aliquot/host/kube/api/v1alpha1"
)

// What kubectl get shows of a kind is there by its definition, of the type that the column is of: a column by a path to nothing is empty, and nobody says so.
func TestColumnsAreFields(t *testing.T) {
	for _, d := range chart(t) {
		version := d.Spec.Versions[0]
		if len(version.Columns) < 3 {
			t.Errorf("of a %s only the columns %v are shown", d.Spec.Names.Kind, version.Columns)
		}
		conditions := map[string]string{"Queue": v1alpha1.Accepted, "Policy": v1alpha1.Accepted, "Share": v1alpha1.ShareApplied}
		for _, c := range version.Columns {
			if err := c.shows(version.Schema.Schema, conditions[d.Spec.Names.Kind]); err != nil {
				t.Errorf("the column %s of a %s, by %s: %v", c.Name, d.Spec.Names.Kind, c.JSONPath, err)
			}
		}
	}
}

// shows checks that a column is a field of an object, which has conditions of one type.
func (c column) shows(object field, condition string) error {
	if name, of := strings.CutPrefix(c.JSONPath, ".metadata."); of {
		for i := range reflect.TypeFor[metav1.ObjectMeta]().NumField() {
			one := reflect.TypeFor[metav1.ObjectMeta]().Field(i)
			if has, _, _ := strings.Cut(one.Tag.Get("json"), ","); has == name {
				if (c.Type == "date") != (one.Type == reflect.TypeFor[metav1.Time]()) {
					return fmt.Errorf("it is of type %s, and the field in Go a %s", c.Type, one.Type)
				}
				return nil
			}
		}
		return fmt.Errorf("metadata has no field %s", name)
	}
	parsed, err := jsonpath.Parse(c.Name, "{"+c.JSONPath+"}")
	if err != nil {
		return err
	}
	end, err := walk(object, parsed.Root, condition)
	if err == nil && end.Type != c.Type {
		err = fmt.Errorf("it is of type %s, and the field a %s", c.Type, end.Type)
	}
	return err
}

// walk is the field of an object to which a path leads.
func walk(at field, path *jsonpath.ListNode, condition string) (end field, err error) {
	for _, node := range path.Nodes {
		switch node := node.(type) {
		case *jsonpath.ListNode:
			at, err = walk(at, node, condition)
		case *jsonpath.FieldNode:
			inner, has := at.Properties[node.Value]
			if !has {
				return at, fmt.Errorf("there is no field %s, of %v", node.Value, at.names())
			}
			at = inner
		case *jsonpath.FilterNode:
			if at.Items == nil {
				return at, fmt.Errorf("it takes some of what is no list but of type %s", at.Type)
			}
			at = *at.Items
			if _, err = walk(at, node.Left, condition); err == nil && !reflect.DeepEqual(node, filterOf(condition)) {
				err = fmt.Errorf("it does not take the condition %s", condition)
			}
		default:
			err = fmt.Errorf("this test knows nothing of %s in a path", node)
		}
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

// filterOf is the filter of the condition of a type.
func filterOf(condition string) jsonpath.Node {
	list := func(node jsonpath.Node) *jsonpath.ListNode {
		return &jsonpath.ListNode{NodeType: jsonpath.NodeList, Nodes: []jsonpath.Node{node}}
	}
	return &jsonpath.FilterNode{
		NodeType: jsonpath.NodeFilter, Operator: "==",
		Left:  list(&jsonpath.FieldNode{NodeType: jsonpath.NodeField, Value: "type"}),
		Right: list(&jsonpath.TextNode{NodeType: jsonpath.NodeText, Text: condition}),
	}
}
