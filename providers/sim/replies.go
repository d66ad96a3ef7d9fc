package sim

import "strings"

// Reply names one answer the simulator can give. The names are Apple's reasons
// and Google's error codes; where Google answers one code with several bodies,
// a suffix tells which.
type Reply uint8

// Every answer the simulator can give.
const (
	NoReply Reply = iota
	NotOurPath

	APNSAccepted
	APNSBadCollapseID
	APNSBadDeviceToken
	APNSBadExpirationDate
	APNSBadMessageID
	APNSBadPriority
	APNSBadTopic
	APNSDeviceTokenNotForTopic
	APNSDuplicateHeaders
	APNSIdleTimeout
	APNSInvalidPushType
	APNSMissingDeviceToken
	APNSMissingTopic
	APNSPayloadEmpty
	APNSTopicDisallowed
	APNSBadCertificate
	APNSBadCertificateEnvironment
	APNSExpiredProviderToken
	APNSForbidden
	APNSInvalidProviderToken
	APNSMissingProviderToken
	APNSUnrelatedKeyIDInToken
	APNSBadEnvironmentKeyIDInToken // as Apple documents it
	APNSBadEnvironmentKeyInToken   // as it is really sent
	APNSBadPath
	APNSMethodNotAllowed
	APNSUnregistered
	APNSExpiredToken
	APNSPayloadTooLarge
	APNSTooManyProviderTokenUpdates
	APNSTooManyRequests
	APNSInternalServerError
	APNSServiceUnavailable
	APNSShutdown

	FCMAccepted
	FCMValidated              // validate_only: nothing is delivered
	FCMInvalidToken           // Google's documented text, FcmError only
	FCMInvalidTokenField      // the text with a field violation
	FCMInvalidValue           // a field of the wrong type or out of range
	FCMInvalidArgument        // a field that the service itself refuses
	FCMTooLarge               // 400 without any details
	FCMNoRecipient            // none of token, fid, topic, condition
	FCMDisabledToken          // a dead iOS token arriving as 400
	FCMUnauthenticated        // our access token is not good
	FCMThirdPartyAuth         // Google's credentials for APNs are not good
	FCMThirdPartyAuthSameText // the same with the text of FCMUnauthenticated
	FCMSenderIDMismatch
	FCMPermissionDenied
	FCMUnregistered
	FCMUnregisteredAPNS // with Apple's 410 in the details
	FCMNotFound         // the project, not the token
	FCMProjectQuota
	FCMDeviceQuota
	FCMTopicQuota
	FCMInternal
	FCMBadGateway // HTML, not JSON
	FCMUnavailable
	FCMUnspecified

	OAuthGranted
	OAuthInvalidGrant
	OAuthUnsupportedGrantType
	OAuthInvalidRequest
	OAuthMethodNotAllowed
	OAuthInternal
	OAuthUnavailable
	OAuthTooMany

	replyCount
)

// replyText is what a Reply looks like from outside.
type replyText struct {
	provider Provider
	status   int
	name     string
}

var replies = [replyCount]replyText{
	NoReply:    {Nobody, 0, "none"},
	NotOurPath: {Nobody, 404, "unknown_path"},

	APNSAccepted:                    {APNS, 200, "accepted"},
	APNSBadCollapseID:               {APNS, 400, "BadCollapseId"},
	APNSBadDeviceToken:              {APNS, 400, "BadDeviceToken"},
	APNSBadExpirationDate:           {APNS, 400, "BadExpirationDate"},
	APNSBadMessageID:                {APNS, 400, "BadMessageId"},
	APNSBadPriority:                 {APNS, 400, "BadPriority"},
	APNSBadTopic:                    {APNS, 400, "BadTopic"},
	APNSDeviceTokenNotForTopic:      {APNS, 400, "DeviceTokenNotForTopic"},
	APNSDuplicateHeaders:            {APNS, 400, "DuplicateHeaders"},
	APNSIdleTimeout:                 {APNS, 400, "IdleTimeout"},
	APNSInvalidPushType:             {APNS, 400, "InvalidPushType"},
	APNSMissingDeviceToken:          {APNS, 400, "MissingDeviceToken"},
	APNSMissingTopic:                {APNS, 400, "MissingTopic"},
	APNSPayloadEmpty:                {APNS, 400, "PayloadEmpty"},
	APNSTopicDisallowed:             {APNS, 400, "TopicDisallowed"},
	APNSBadCertificate:              {APNS, 403, "BadCertificate"},
	APNSBadCertificateEnvironment:   {APNS, 403, "BadCertificateEnvironment"},
	APNSExpiredProviderToken:        {APNS, 403, "ExpiredProviderToken"},
	APNSForbidden:                   {APNS, 403, "Forbidden"},
	APNSInvalidProviderToken:        {APNS, 403, "InvalidProviderToken"},
	APNSMissingProviderToken:        {APNS, 403, "MissingProviderToken"},
	APNSUnrelatedKeyIDInToken:       {APNS, 403, "UnrelatedKeyIdInToken"},
	APNSBadEnvironmentKeyIDInToken:  {APNS, 403, "BadEnvironmentKeyIdInToken"},
	APNSBadEnvironmentKeyInToken:    {APNS, 403, "BadEnvironmentKeyInToken"},
	APNSBadPath:                     {APNS, 404, "BadPath"},
	APNSMethodNotAllowed:            {APNS, 405, "MethodNotAllowed"},
	APNSUnregistered:                {APNS, 410, "Unregistered"},
	APNSExpiredToken:                {APNS, 410, "ExpiredToken"},
	APNSPayloadTooLarge:             {APNS, 413, "PayloadTooLarge"},
	APNSTooManyProviderTokenUpdates: {APNS, 429, "TooManyProviderTokenUpdates"},
	APNSTooManyRequests:             {APNS, 429, "TooManyRequests"},
	APNSInternalServerError:         {APNS, 500, "InternalServerError"},
	APNSServiceUnavailable:          {APNS, 503, "ServiceUnavailable"},
	APNSShutdown:                    {APNS, 503, "Shutdown"},

	FCMAccepted:               {FCM, 200, "accepted"},
	FCMValidated:              {FCM, 200, "validated"},
	FCMInvalidToken:           {FCM, 400, "INVALID_ARGUMENT:registration_token"},
	FCMInvalidTokenField:      {FCM, 400, "INVALID_ARGUMENT:message.token"},
	FCMInvalidValue:           {FCM, 400, "INVALID_ARGUMENT:value"},
	FCMInvalidArgument:        {FCM, 400, "INVALID_ARGUMENT:field"},
	FCMTooLarge:               {FCM, 400, "INVALID_ARGUMENT:size"},
	FCMNoRecipient:            {FCM, 400, "INVALID_ARGUMENT:recipient"},
	FCMDisabledToken:          {FCM, 400, "INVALID_ARGUMENT:apns_unregistered"},
	FCMUnauthenticated:        {FCM, 401, "UNAUTHENTICATED"},
	FCMThirdPartyAuth:         {FCM, 401, "THIRD_PARTY_AUTH_ERROR"},
	FCMThirdPartyAuthSameText: {FCM, 401, "THIRD_PARTY_AUTH_ERROR:same_text"},
	FCMSenderIDMismatch:       {FCM, 403, "SENDER_ID_MISMATCH"},
	FCMPermissionDenied:       {FCM, 403, "PERMISSION_DENIED"},
	FCMUnregistered:           {FCM, 404, "UNREGISTERED"},
	FCMUnregisteredAPNS:       {FCM, 404, "UNREGISTERED:apns"},
	FCMNotFound:               {FCM, 404, "NOT_FOUND"},
	FCMProjectQuota:           {FCM, 429, "RATE_LIMIT_EXCEEDED"},
	FCMDeviceQuota:            {FCM, 429, "QUOTA_EXCEEDED"},
	FCMTopicQuota:             {FCM, 429, "QUOTA_EXCEEDED:topic"},
	FCMInternal:               {FCM, 500, "INTERNAL"},
	FCMBadGateway:             {FCM, 502, "BAD_GATEWAY"},
	FCMUnavailable:            {FCM, 503, "UNAVAILABLE"},
	FCMUnspecified:            {FCM, 500, "UNSPECIFIED_ERROR"},

	OAuthGranted:              {OAuth, 200, "granted"},
	OAuthInvalidGrant:         {OAuth, 400, "invalid_grant"},
	OAuthUnsupportedGrantType: {OAuth, 400, "unsupported_grant_type"},
	OAuthInvalidRequest:       {OAuth, 400, "invalid_request"},
	OAuthMethodNotAllowed:     {OAuth, 405, "method_not_allowed"},
	OAuthInternal:             {OAuth, 500, "internal_failure"},
	OAuthUnavailable:          {OAuth, 503, "temporarily_unavailable"},
	OAuthTooMany:              {OAuth, 429, "rate_limit_exceeded"},
}

// Provider is the service that gives this answer.
func (r Reply) Provider() Provider { return r.text().provider }

// Status is its HTTP status.
func (r Reply) Status() int { return r.text().status }

// Accepted reports whether it means that a push was accepted.
func (r Reply) Accepted() bool { return r == APNSAccepted || r == FCMAccepted }

// String is its name in the ledger and the admin API, unique within its
// provider.
func (r Reply) String() string { return r.text().name }

func (r Reply) text() replyText {
	if r >= replyCount {
		return replies[NoReply]
	}
	return replies[r]
}

// ParseReply finds an answer of a provider by its name, in any case.
func ParseReply(p Provider, name string) (Reply, bool) {
	for r, t := range replies {
		if t.provider == p && Reply(r) != NoReply && strings.EqualFold(t.name, name) {
			return Reply(r), true
		}
	}
	return NoReply, false
}
