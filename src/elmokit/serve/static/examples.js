// What the views open with: sentences of our own.

const lines = (text) =>
  text
    .trim()
    .split("\n")
    .map((line) => line.trim())
    .join("\n");

/** Words in many contexts; a line with # names the label of the lines after it. */
export const WORDS = {
  bank: {
    language: "en",
    word: "bank",
    text: lines(`
      # river
      We left the canoe on the bank and walked up to the village.
      The children fished from the grassy bank all afternoon.
      He swam to the bank and pulled himself out of the cold water.
      On the far bank of the stream, two deer were drinking.
      A heron stood motionless on the sandy bank, watching for fish.
      Moss and wild flowers covered the steep bank.
      They walked along the bank of the river until sunset.
      After the flood the river had eaten away half of its northern bank.
      # money
      He opened an account at the bank when he was eighteen.
      In the end the bank refused to lend the company any more money.
      She pays the bank four hundred euros a month for her mortgage.
      Two masked men robbed the bank on the main street before noon.
      You can withdraw cash from the bank with this card.
      My sister works for a large bank in Frankfurt.
      They asked the bank for a loan to buy the bakery.
      Last year the bank raised its interest rates twice.
    `),
  },
  light: {
    language: "en",
    word: "light",
    text: lines(`
      # lamp
      The light in the kitchen was still on.
      A bright light shone through the window.
      She turned off the light and went to sleep.
      Plants turn towards the light.
      We read by the light of a candle.
      Red light has a longer wavelength than blue.
      There was not enough light to take a picture.
      The light of the moon fell on the snow.
      # weight
      The suitcase is very light and easy to carry.
      She packed only a light jacket for the trip.
      A light wooden boat can be lifted by two people.
      The new laptop is thin and light.
      The box was so light that I thought it was empty.
      Feathers are light and keep birds warm.
      For long hikes you need light boots.
      Carbon fibre is strong but light.
    `),
  },
  苹果: {
    language: "zh",
    word: "苹果",
    text: lines(`
      # 水果
      她把苹果洗干净，切成了四块。
      这个苹果又红又甜，我很喜欢吃。
      妈妈从市场上买回来三斤苹果。
      秋天到了，树上结满了苹果。
      每天吃一个苹果对身体有好处。
      孩子手里拿着一个咬了一口的苹果。
      爷爷从树上摘下几个苹果送给我们。
      桌子上的盘子里放着香蕉和苹果。
      # 公司
      苹果昨天发布了新的手机。
      他在苹果工作了五年，负责开发软件。
      我想把旧电脑换成苹果的笔记本。
      这个应用在苹果的商店里可以下载。
      和微软一样，苹果也在研究人工智能。
      法院认为苹果没有侵犯对方的专利。
      很多年轻人愿意花钱买苹果的产品。
      去年苹果宣布将在中国建立数据中心。
    `),
  },
  代表: {
    language: "zh",
    word: "代表",
    text: lines(`
      # 人
      各国代表在会上讨论了气候问题。
      他是工人选出来的代表。
      大会代表一致通过了这项决议。
      学生代表在台上发言。
      我们派了两名代表去参加谈判。
      公司的代表没有回答记者的提问。
      会议结束后，代表们一起合影。
      每个班选一个代表参加比赛。
      # 表示
      这个符号代表什么？
      他的意见不能代表大家的想法。
      在这张地图上，红色代表山地。
      我代表全家向您表示感谢。
      一次失败并不代表永远失败。
      图上的每一个点代表一座城市。
      沉默不代表同意。
      这些数字代表了公司一年的收入。
    `),
  },
};

/** Texts of the other views, by the language of the model. */
export const TEXTS = {
  en: {
    first: "They sat on the bank of the river and fished.",
    second: "The bank lent her the money for a new house.",
    text: "The old man walked slowly along the river bank and watched the boats come home.",
    sentence: "She sat on the river bank.",
    token: 5,
    query: "They sat on the *bank* of the river and fished.",
    task: "Anna Berg lives in Lund and works for a bank in Oslo.",
    question: "Where does Anna work?",
    relation: "The <e1>author</e1> wrote a <e2>novel</e2> about the sea.",
  },
  zh: {
    first: "他在公园里吃了一个苹果。",
    second: "苹果昨天发布了新的手机。",
    text: "老人沿着河岸慢慢地走，看着渔船回家。",
    sentence: "她把苹果洗干净了。",
    token: 2,
    query: "她把*苹果*洗干净，切成了四块。",
    task: "王芳住在上海，在一家银行工作。",
    question: "王芳在哪里工作？",
    relation: "<e1>作者</e1>写了一本关于大海的<e2>小说</e2>。",
  },
};
