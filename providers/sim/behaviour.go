package sim

// Behaviours are the ways of the real providers that the simulator shows, by
// number: 1 to 17 of APNs, 18 to 25 of FCM. Each can be had of a token or all
// tokens with a prefix (Mark), by chance (Faults.Chances), by a command and by
// a schedule; those with a Rule also come about by themselves, as in life.
// The simulator's events carry the number.
var Behaviours = [26]string{
	1:  "accepted by APNs",
	2:  "one stream until authenticated",
	3:  "adaptive stream limit",
	4:  "disconnect for too many bad tokens",
	5:  "dead token, 410",
	6:  "dead token, 410 only after a grace period",
	7:  "bad token, or a whole route in the wrong environment",
	8:  "provider token expired, connection wedged",
	9:  "provider token changed too often",
	10: "bad credentials",
	11: "too many requests for one device (APNs)",
	12: "faults of header or payload",
	13: "server errors of APNs, outage",
	14: "graceful shutdown",
	15: "abrupt death",
	16: "black hole",
	17: "connections refused",
	18: "accepted or validated by FCM",
	19: "unregistered, or a bare 404",
	20: "invalid argument",
	21: "project quota",
	22: "device or topic quota",
	23: "server errors of FCM",
	24: "401 and 403, each with two meanings",
	25: "transport of FCM: streams, idleness, pings",
}

// Behaviour is the number of what an answer shows; 0 for those of the OAuth
// endpoint and for NoReply.
func (r Reply) Behaviour() int {
	switch r {
	case APNSAccepted:
		return 1
	case APNSUnregistered, APNSExpiredToken:
		return 5
	case APNSBadDeviceToken, APNSDeviceTokenNotForTopic:
		return 7
	case APNSExpiredProviderToken:
		return 8
	case APNSTooManyProviderTokenUpdates:
		return 9
	case APNSBadCertificate, APNSBadCertificateEnvironment, APNSForbidden, APNSInvalidProviderToken, APNSMissingProviderToken,
		APNSUnrelatedKeyIDInToken, APNSBadEnvironmentKeyIDInToken, APNSBadEnvironmentKeyInToken:
		return 10
	case APNSTooManyRequests:
		return 11
	case APNSInternalServerError, APNSServiceUnavailable:
		return 13
	case APNSShutdown:
		return 14
	case FCMAccepted, FCMValidated:
		return 18
	case FCMUnregistered, FCMUnregisteredAPNS, FCMNotFound:
		return 19
	case FCMProjectQuota:
		return 21
	case FCMDeviceQuota, FCMTopicQuota:
		return 22
	case FCMInternal, FCMUnavailable, FCMBadGateway, FCMUnspecified:
		return 23
	case FCMUnauthenticated, FCMThirdPartyAuth, FCMThirdPartyAuthSameText, FCMSenderIDMismatch, FCMPermissionDenied:
		return 24
	}
	switch r.Provider() {
	case APNS:
		return 12
	case FCM:
		return 20
	}
	return 0
}
