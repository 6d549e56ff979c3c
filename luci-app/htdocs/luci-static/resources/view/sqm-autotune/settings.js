'use strict';
'require view';
'require form';

/* What the agent takes, so that nothing is saved which it would refuse. */
function whole(option, least, most) {
	option.datatype = 'and(uinteger,range(%d,%d))'.format(least, most);
}

function share(option) {
	option.datatype = 'and(ufloat,max(100))';
}

function address(option) {
	option.validate = (section, value) => !value || /^https?:\/\/\S+$/.test(value) || _('An address that begins with http:// or https://');
	return option;
}

function hours(section, value) {
	const found = /^(\d\d?):(\d\d?)-(\d\d?):(\d\d?)$/.exec(value);
	const [ , from, since, to, until ] = (found || []).map(Number);
	const good = found && from < 24 && to < 24 && since < 60 && until < 60 && (from !== to || since !== until);
	return !value || value === 'always' || good || _('Two times of day, for example 03:00-06:00, or always');
}

return view.extend({
	render: function() {
		const map = new form.Map('sqm-autotune', _('SQM Autotune'), _('Unattended runs, and what the router cannot know of the line.'));
		let s = map.section(form.TypedSection, 'autotune', _('In general'));
		s.anonymous = true;
		let o = s.option(form.Flag, 'enabled', _('Look by itself'), _('Looks at the line from time to time and when it comes up.'));
		o.rmempty = false;
		o = s.option(form.ListValue, 'apply', _('When a calibration is due'));
		o.value('ask', _('tell me'));
		o.value('auto', _('calibrate and write'));
		o.default = 'ask';
		o = s.option(form.Value, 'window', _('Allowed time'), _('Local time, for example 03:00-06:00, or always.'));
		o.placeholder = '03:00-06:00';
		o.validate = hours;
		o = s.option(form.Value, 'daily_mbytes', _('Megabytes a day'));
		whole(o, 0, 1000000);
		o.placeholder = '1000';
		o = s.option(form.Value, 'threshold_percent', _('Change of the modem\'s rate, in %'));
		share(o);
		o.placeholder = '5';
		o = s.option(form.Value, 'settle_minutes', _('It lasts, in minutes'), _('Only then is it a change: a modem may train for a while.'));
		whole(o, 0, 1440);
		o.placeholder = '10';
		o = s.option(form.Value, 'max_age_days', _('Measure again after days'), _('0: never for its age.'));
		whole(o, 0, 3650);
		o.placeholder = '0';
		o = s.option(form.Value, 'quiet_percent', _('Others may use, in %'), _('Of the line. While they use more, an unattended run waits.'));
		share(o);
		o.placeholder = '10';
		o = s.option(form.Value, 'check_minutes', _('Minutes between looks'));
		whole(o, 1, 59);
		o.placeholder = '15';
		s.option(form.Flag, 'keep_last', _('Keep the last result over a restart'));
		o = s.option(form.Value, 'max_added_ms', _('Delay that counts as clean, in ms'), _('Empty: what the line shows to be its best.'));
		o.datatype = 'and(ufloat,min(0.001))';
		o = s.option(form.DynamicList, 'reflector', _('Who answers the pings'));
		o.datatype = 'ipaddr("nomask")';
		o = address(s.option(form.Value, 'server', _('Server of your own'), _('A machine that runs sqm-autotune serve.')));
		o.placeholder = 'http://192.168.1.2:8080';
		address(s.option(form.Value, 'upload_url', _('Upload address')));
		address(s.option(form.Value, 'download_url', _('Download address')));
		o = s.option(form.Value, 'ca_file', _('Certificate authorities'), _('Whom to trust with https, a PEM file. Empty: the system\'s.'));
		o.validate = (section, value) => !value || value.startsWith('/') || _('A file with its whole path, for example /etc/ssl/ours.pem');

		s = map.section(form.TypedSection, 'line', _('Lines'));
		s.anonymous = true;
		s.addremove = true;
		s.option(form.Value, 'interface', _('WAN'), _('Its name in the network settings. Empty: every WAN.'));
		o = s.option(form.ListValue, 'link', _('Kind of link'));
		o.value('', _('what it looks like'));
		[ 'pppoe-vdsl2', 'bridged-vdsl2', 'pppoe-atm', 'pppoa', 'bridged-atm', 'ipoa', 'docsis', 'ethernet', 'pppoe', 'lte' ].forEach(kind => o.value(kind));
		o = s.option(form.Value, 'sync_upload_kbit', _('Modem\'s upload, in kbit/s'));
		whole(o, 1, 10000000);
		o = s.option(form.Value, 'sync_download_kbit', _('Modem\'s download, in kbit/s'));
		whole(o, 1, 10000000);
		o = s.option(form.ListValue, 'metered', _('Metered'));
		o.value('', _('as such lines are'));
		o.value('1', _('yes'));
		o.value('0', _('no'));
		return map.render();
	}
});
