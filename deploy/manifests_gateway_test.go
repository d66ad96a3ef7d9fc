package deploy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Callers reach gateways through the service, by TLS; whoever may send, and Prometheus,
// get to a pod, and a pod to Kafka and Cassandra alone.
func TestKubernetesGateway(t *testing.T) {
	c := kubernetesConfig(t)
	d, s, p := find(t, "Deployment", "pushgateway"), find(t, "Service", "pushgateway"), find(t, "NetworkPolicy", "pushgateway").Spec
	container := d.Spec.Template.Spec.Containers[0]
	_, listens, _ := strings.Cut(c.Gateway.Listen, ":")
	_, admin, _ := strings.Cut(c.Gateway.AdminListen, ":")
	if fmt.Sprint(s.Spec.Selector) != fmt.Sprint(d.Spec.Selector) || fmt.Sprint(p.PodSelector) != fmt.Sprint(d.Spec.Selector) {
		t.Errorf("the service selects %v, the policy %v, and the pods are %v", s.Spec.Selector, p.PodSelector, d.Spec.Selector)
	}
	if len(container.Ports) != 2 || container.Ports[1].Name != "https" || strconv.Itoa(container.Ports[1].ContainerPort) != listens {
		t.Errorf("it listens at %s, and its ports are %+v", c.Gateway.Listen, container.Ports)
	}
	if len(s.Spec.Ports) != 1 || s.Spec.Ports[0].TargetPort != "https" || c.Gateway.TLS.CertFile == "" || c.Gateway.Insecure {
		t.Errorf("the service has %+v, in front of %+v", s.Spec.Ports, c.Gateway.TLS)
	}
	let := ""
	for _, rule := range p.Ingress {
		if len(rule.From) != 1 || len(rule.From[0].NamespaceSelector.MatchLabels) == 0 {
			t.Errorf("let in is everybody: %+v", rule)
		}
		let += fmt.Sprint(rule.Ports[0].Port, " ")
	}
	for _, rule := range p.Egress {
		for _, port := range rule.Ports {
			let += fmt.Sprint(port.Port, " ")
		}
	}
	_, kafka, _ := strings.Cut(c.Kafka.Brokers[0], ":")
	_, cassandra, _ := strings.Cut(c.Cassandra.Hosts[0], ":")
	if want := strings.Join([]string{admin, listens, "53 53", kafka, cassandra, ""}, " "); let != want {
		t.Errorf("let are ports %s, want %s", let, want)
	}
}

// A team reaches the dashboard through the service, by TLS, and nothing else of it; it gets
// to the three servers, and is killed by no probe because one of them is away.
func TestKubernetesDashboard(t *testing.T) {
	c := configOf(t, "pushdashboard")
	d, s, p := find(t, "Deployment", "pushdashboard"), find(t, "Service", "pushdashboard"), find(t, "NetworkPolicy", "pushdashboard").Spec
	container := d.Spec.Template.Spec.Containers[0]
	_, listens, _ := strings.Cut(c.Gateway.Dashboard.Listen, ":")
	if fmt.Sprint(s.Spec.Selector) != fmt.Sprint(d.Spec.Selector) || fmt.Sprint(p.PodSelector) != fmt.Sprint(d.Spec.Selector) {
		t.Errorf("the service selects %v, the policy %v, and the pods are %v", s.Spec.Selector, p.PodSelector, d.Spec.Selector)
	}
	if len(container.Ports) != 1 || container.Ports[0].Name != "https" || strconv.Itoa(container.Ports[0].ContainerPort) != listens || s.Spec.Ports[0].TargetPort != "https" {
		t.Errorf("it listens at %s, its ports are %+v, and those of the service %+v", listens, container.Ports, s.Spec.Ports)
	}
	for _, probe := range []probe{container.LivenessProbe, container.ReadinessProbe} {
		if h := probe.HTTPGet; h["path"] != "/healthz" || h["port"] != "https" || h["scheme"] != "HTTPS" {
			t.Errorf("it is probed by %v", h)
		}
	}
	if len(p.Ingress) != 1 || len(p.Ingress[0].From) != 1 || len(p.Ingress[0].From[0].NamespaceSelector.MatchLabels) == 0 || fmt.Sprint(p.Ingress[0].Ports[0].Port) != listens {
		t.Errorf("let in is %+v", p.Ingress)
	}
	let := ""
	for _, rule := range p.Egress {
		for _, port := range rule.Ports {
			let += fmt.Sprint(port.Port, " ")
		}
	}
	if let != "53 53 9093 6379 9042 " {
		t.Errorf("let out is to ports %s", let)
	}
	if user := c.Kafka.SASL.Username; user == configOf(t, "pushgateway").Kafka.SASL.Username || user != c.Redis.Username {
		t.Errorf("it is %s in Kafka, and %s in Redis", user, c.Redis.Username)
	}
	pinned(t, "pushdashboard", container.Image)
}

// Fan-outs get to Kafka and Cassandra alone, and webhooks to Kafka and to public addresses;
// nobody but Prometheus gets to either, and each has a name of its own.
func TestKubernetesBesideTheGateway(t *testing.T) {
	c := kubernetesConfig(t)
	users := map[string]bool{c.Kafka.SASL.Username: true, configOf(t, "pushgateway").Kafka.SASL.Username: true}
	for name, tt := range map[string]struct {
		listens, egress string
		public          bool
	}{
		"pushfanout":   {c.Gateway.Fanout.AdminListen, "53 53 9093 9042 ", false},
		"pushwebhooks": {c.Gateway.Webhooks.AdminListen, "53 53 9093 443 ", true},
	} {
		p := find(t, "NetworkPolicy", name).Spec
		_, port, _ := strings.Cut(tt.listens, ":")
		if len(p.Ingress) != 1 || len(p.Ingress[0].From) != 1 || len(p.Ingress[0].From[0].NamespaceSelector.MatchLabels) == 0 || fmt.Sprint(p.Ingress[0].Ports[0].Port) != port {
			t.Errorf("%s lets in %+v", name, p.Ingress)
		}
		if fmt.Sprint(p.PodSelector) != fmt.Sprint(find(t, "Deployment", name).Spec.Selector) {
			t.Errorf("the policy %s is for %v", name, p.PodSelector)
		}
		ports, to := "", 0
		for _, rule := range p.Egress {
			for _, port := range rule.Ports {
				ports += fmt.Sprint(port.Port, " ")
			}
			to += len(rule.To)
		}
		if ports != tt.egress || (to == 2) != tt.public {
			t.Errorf("%s gets to the ports %s, of %d networks", name, ports, to)
		}
		if user := configOf(t, name).Kafka.SASL.Username; users[user] {
			t.Errorf("%s is %s in Kafka, as another one is", name, user)
		} else {
			users[user] = true
		}
	}
	if c.Gateway.Fanout.Enabled != true || len(c.Gateway.Webhooks.Senders) == 0 {
		t.Errorf("there is nothing to do: %+v", c.Gateway)
	}
}
