package push

import "testing"

// An origin's name says of whom it is, whatever is in the names.
func TestOriginsByName(t *testing.T) {
	for o, want := range map[Origin]string{
		{Kind: OfCampaign, Name: "autumn"}:                      "campaign/autumn",
		{Kind: OfCampaign, Name: "autumn", Sender: "orders"}:    "campaign@orders/autumn",
		{Kind: OfCampaign, Name: "b/c@d", Sender: "a/b @%\xff"}: "campaign@a%2Fb%20@%25%FF/b/c@d",
		{Kind: OfCampaign, Name: "@orders/autumn"}:              "campaign/@orders/autumn",
		{Kind: OfSender, Name: "campaign@orders/autumn"}:        "sender/campaign@orders/autumn",
	} {
		if got := o.String(); got != want {
			t.Errorf("%+v is %q, want %q", o, got, want)
		}
		if got, ok := ParseOrigin(want); !ok || got != o {
			t.Errorf("%q is read as %+v %v, want %+v", want, got, ok, o)
		}
	}
	for _, s := range []string{"", "campaign", "campaign/", "campaign@orders/", "campaign@/autumn", "campaign@%/autumn", "sender@a/b", "topic/x"} {
		if o, ok := ParseOrigin(s); ok {
			t.Errorf("%q is read as %+v", s, o)
		}
	}
}
